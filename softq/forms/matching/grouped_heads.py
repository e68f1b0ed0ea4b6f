"""What onnxruntime's GroupQueryAttention computes, as lines of ONNX text.

Sequences of a batch may be of different lengths: each one's new keys stand behind its own past ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softq.forms.matching.rotations import numbers, turn
from softq.graph.bodies import format_float


@dataclass(frozen=True)
class GroupedHeads:
    """How queries and keys are laid out, and what is done to the scores.

    Attributes:
        heads: Of the queries.
        groups: Heads of keys and values, each for equally many of the queries'.
        size: Width of a head.
        packed: Whether one input holds queries, keys and values side by side.
        rotated: How many numbers of a head are turned by their position; 0 for none.
        interleaved: Whether neighbours are turned together, not numbers half that width apart.
        scale: What scores are multiplied by, 0 for one over the root of the width.
        cap: Scores become `cap * tanh(scores / cap)`; 0 for none.
        window: How many keys a query sees, its own the last; -1 for all up to that.
        causal: Whether a query sees no later keys of its sequence.
    """

    heads: int
    groups: int
    size: int
    packed: bool
    rotated: int
    interleaved: bool
    scale: float
    cap: float
    window: int
    causal: bool


def grouped_lines(form: GroupedHeads) -> Sequence[str]:
    """Return lines from the operator's inputs to `output`, `present_key` and `present_value`."""
    heads, groups, size = form.heads, form.groups, form.size
    lines = [numbers("q_heads", 0, 0, heads, size), numbers("k_heads", 0, 0, groups, size)]
    joined = ("query", "key", "value")
    if form.packed:
        lines += [
            numbers("widths", heads * size, groups * size, groups * size),
            "own_query, own_key, own_value = Split <axis: int = 2> (query, widths)",
        ]
        joined = ("own_query", "own_key", "own_value")
    layouts = ("q_heads", "k_heads", "k_heads")
    lines += [f"{name[0]}0 = Reshape ({source}, {to})" for name, source, to in zip("qkv", joined, layouts, strict=True)]
    lines += _lengths()
    lines += _rotated(form) if form.rotated else ["q1 = Identity (q0)", "k1 = Identity (k0)"]
    lines += _cache("k1", "past_key", "present_key", groups, size)
    lines += _cache("v0", "past_value", "present_value", groups, size)
    return lines + _attend(form)


def _lengths() -> list[str]:
    """Return lines for the lengths, the past one of each sequence, and the numbers of keys."""
    return [
        numbers("scalar"),
        numbers("column", -1, 1),
        "zero = Constant <value: tensor = int64 {0}> ()",
        "one = Constant <value: tensor = int64 {1}> ()",
        "new1 = Shape <start: int = 1, end: int = 2> (query)",
        "new = Squeeze (new1)",
        "room1 = Shape <start: int = 2, end: int = 3> (past_key)",
        "room = Squeeze (room1)",
        "wide = Cast <to: int = 7> (seqlens)",
        "wide_column = Reshape (wide, column)",
        "lengths = Add (wide_column, one)",
        "total64 = Cast <to: int = 7> (total)",
        "whole = Reshape (total64, scalar)",
        "prompt = Equal (new, whole)",
        "before = Sub (lengths, new)",
        "kept = Max (before, zero)",
        "past = Where (prompt, zero, kept)",
        "steps = Range (zero, new, one)",
        "places = Add (past, steps)",
        "count = Max (room, whole)",
        "keys = Range (zero, count, one)",
        # Where a key is in the past keys with the new ones behind them.
        "is_past = Less (keys, past)",
        "shift = Sub (room, past)",
        "moved = Add (keys, shift)",
        "there = Where (is_past, keys, moved)",
        "both_lengths = Add (room, new)",
        "last_key = Sub (both_lengths, one)",
        "found = Min (there, last_key)",
        numbers("spread", 1, 3),
        "at = Unsqueeze (found, spread)",
    ]


def _cache(new: str, past: str, present: str, groups: int, size: int) -> list[str]:
    spread = f"int64[1, {groups}, 1, {size}] {{{', '.join(['0'] * (groups * size))}}}"
    return [
        f"{new}_t = Transpose <perm: ints = [0, 2, 1, 3]> ({new})",
        f"{new}_all = Concat <axis: int = 2> ({past}, {new}_t)",
        f"{new}_zeros = Constant <value: tensor = {spread}> ()",
        f"{new}_at = Add (at, {new}_zeros)",
        f"{present} = GatherElements <axis: int = 2> ({new}_all, {new}_at)",
    ]


def _rotated(form: GroupedHeads) -> list[str]:
    size, width = form.size, form.rotated
    lines = ["h = Concat <axis: int = 2> (q0, k0)", numbers("head", -2)]
    for name in ("cos", "sin"):
        lines += [f"{name}_at = Gather ({name}_cache, places)", f"{name} = Unsqueeze ({name}_at, head)"]
    source = "h"
    if width < size:
        lines += [numbers("parts", width, size - width), "turning, rest = Split <axis: int = 3> (h, parts)"]
        source = "turning"
    lines += turn(source, width, form.interleaved)
    lines.append("all = Concat <axis: int = 3> (both, rest)" if width < size else "all = Identity (both)")
    return [*lines, numbers("kinds", form.heads, form.groups), "q1, k1 = Split <axis: int = 2> (all, kinds)"]


def _attend(form: GroupedHeads) -> list[str]:
    heads, groups, size = form.heads, form.groups, form.size
    return [
        "q_t = Transpose <perm: ints = [0, 2, 1, 3]> (q1)",
        numbers("grouped", 0, groups, heads // groups, -1, size),
        "q5 = Reshape (q_t, grouped)",
        numbers("middle", 2),
        "k5 = Unsqueeze (present_key, middle)",
        "v5 = Unsqueeze (present_value, middle)",
        "kt = Transpose <perm: ints = [0, 1, 2, 4, 3]> (k5)",
        "products = MatMul (q5, kt)",
        _number("factor", form.scale or 1.0 / math.sqrt(size)),
        "raw = Mul (products, factor)",
        *_capped(form.cap),
        numbers("axes", 1, 2, 4),
        "limits = Unsqueeze (places, axes)",
        *_seen(form),
        _number("least", -3.4028234663852886e38),
        "masked = Where (seen, scores, least)",
        "weights = Softmax <axis: int = -1> (masked)",
        "y5 = MatMul (weights, v5)",
        numbers("apart", 0, heads, -1, size),
        "y4 = Reshape (y5, apart)",
        "y_t = Transpose <perm: ints = [0, 2, 1, 3]> (y4)",
        numbers("joined", 0, 0, heads * size),
        "output = Reshape (y_t, joined)",
    ]


def _number(name: str, value: float) -> str:
    return f"{name} = Constant <value: tensor = float {{{format_float(value)}}}> ()"


def _capped(cap: float) -> list[str]:
    if not cap:
        return ["scores = Identity (raw)"]
    return [_number("cap", cap), "part = Div (raw, cap)", "bent = Tanh (part)", "scores = Mul (bent, cap)"]


def _seen(form: GroupedHeads) -> list[str]:
    """Return lines for which keys a query sees: its own and those before it within the window, or all."""
    if not form.causal:
        return [
            numbers("spread_lengths", 2, 3, 4),
            "ends = Unsqueeze (lengths, spread_lengths)",
            "seen = Less (keys, ends)",
        ]
    if form.window < 0:
        return ["seen = LessOrEqual (keys, limits)"]
    return [
        f"reach = Constant <value: tensor = int64 {{{form.window}}}> ()",
        "before_own = LessOrEqual (keys, limits)",
        "behind_window = Sub (limits, reach)",
        "near = Greater (keys, behind_window)",
        "seen = And (before_own, near)",
    ]
