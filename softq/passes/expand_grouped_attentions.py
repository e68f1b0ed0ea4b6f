"""Open onnxruntime's GroupQueryAttention, causal attention of grouped heads with a cache, into standard operators.

Sequences of a batch may be of different lengths: each one's new keys stand behind its own past ones.
"""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from softq.graph.bodies import format_float, has_input, parse_body
from softq.passes import BodyPass, PassEntry
from softq.passes.expand_contrib import DOMAIN
from softq.passes.expand_rotations import numbers, turn

_INPUTS = ("query", "key", "value", "past_key", "past_value", "seqlens", "total", "cos_cache", "sin_cache")


class ExpandGroupedAttentions(BodyPass):
    """Opens GroupQueryAttention of float32; packed, windowed, capped, biased and quantized ones stay."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        if (node.domain, node.op_type) != (DOMAIN, "GroupQueryAttention") or opset < 18:
            return None
        heads, groups = (node.attributes.get_int(name, 0) for name in ("num_heads", "kv_num_heads"))
        query, others = node.inputs[0], {"softcap": 0.0}
        plain = all(node.attributes.get_float(name, value) == value for name, value in others.items())
        plain &= node.attributes.get_int("local_window_size", -1) == -1 and not any(
            node.attributes.get_int(name, 0) for name in ("smooth_softmax", "qk_output", "k_quant_type", "v_quant_type")
        )
        known = query is not None and query.dtype == ir.DataType.FLOAT and query.shape is not None
        if not plain or not known or any(has_input(node, place) for place in range(9, len(node.inputs))):
            return None
        assert query is not None, "it is known"
        assert query.shape is not None, "it is known"
        hidden, rotated = query.shape[-1], bool(node.attributes.get_int("do_rotary", 0))
        places = [*range(1, 7), *([7, 8] if rotated else [])]
        if not isinstance(hidden, int) or not heads or not groups or not all(has_input(node, p) for p in places):
            return None
        size = hidden // heads
        scale = node.attributes.get_float("scale", 0.0) or 1.0 / math.sqrt(size)
        lines = [
            numbers("q_heads", 0, 0, heads, size),
            numbers("k_heads", 0, 0, groups, size),
            "q0 = Reshape (query, q_heads)",
            "k0 = Reshape (key, k_heads)",
            "v0 = Reshape (value, k_heads)",
            *_lengths(),
        ]
        if rotated:
            cache = node.inputs[7]
            width = None if cache is None or cache.shape is None else cache.shape[-1]
            if not isinstance(width, int):
                return None
            lines += _rotated(heads, groups, size, 2 * width, bool(node.attributes.get_int("rotary_interleaved", 0)))
        else:
            lines += ["q1 = Identity (q0)", "k1 = Identity (k0)"]
        lines += [*_cache("k1", "past_key", "present_key", groups, size)]
        lines += [*_cache("v0", "past_value", "present_value", groups, size)]
        lines += _attend(heads, groups, size, scale)
        return parse_body(opset, _INPUTS, ["output", "present_key", "present_value"], lines)


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


def _rotated(heads: int, groups: int, size: int, width: int, interleaved: bool) -> list[str]:
    lines = ["h = Concat <axis: int = 2> (q0, k0)", numbers("head", -2)]
    for name in ("cos", "sin"):
        lines += [f"{name}_at = Gather ({name}_cache, places)", f"{name} = Unsqueeze ({name}_at, head)"]
    source = "h"
    if width < size:
        lines += [numbers("parts", width, size - width), "turning, rest = Split <axis: int = 3> (h, parts)"]
        source = "turning"
    lines += turn(source, width, interleaved)
    lines.append("all = Concat <axis: int = 3> (both, rest)" if width < size else "all = Identity (both)")
    return [*lines, numbers("kinds", heads, groups), "q1, k1 = Split <axis: int = 2> (all, kinds)"]


def _attend(heads: int, groups: int, size: int, scale: float) -> list[str]:
    return [
        "q_t = Transpose <perm: ints = [0, 2, 1, 3]> (q1)",
        numbers("grouped", 0, groups, heads // groups, -1, size),
        "q5 = Reshape (q_t, grouped)",
        numbers("middle", 2),
        "k5 = Unsqueeze (present_key, middle)",
        "v5 = Unsqueeze (present_value, middle)",
        "kt = Transpose <perm: ints = [0, 1, 2, 4, 3]> (k5)",
        "products = MatMul (q5, kt)",
        f"factor = Constant <value: tensor = float {{{format_float(scale)}}}> ()",
        "scores = Mul (products, factor)",
        numbers("axes", 1, 2, 4),
        "limits = Unsqueeze (places, axes)",
        "seen = LessOrEqual (keys, limits)",
        "least = Constant <value: tensor = float {-3.4028234663852886e38}> ()",
        "masked = Where (seen, scores, least)",
        "weights = Softmax <axis: int = -1> (masked)",
        "y5 = MatMul (weights, v5)",
        numbers("apart", 0, heads, -1, size),
        "y4 = Reshape (y5, apart)",
        "y_t = Transpose <perm: ints = [0, 2, 1, 3]> (y4)",
        numbers("joined", 0, 0, heads * size),
        "output = Reshape (y_t, joined)",
    ]


PASS = PassEntry("expand-grouped-attentions", ExpandGroupedAttentions, "Open onnxruntime's GroupQueryAttention")
