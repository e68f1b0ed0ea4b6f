"""What onnxruntime's Attention and MultiHeadAttention have in common, as lines of ONNX text.

The semantics are those of the CPU kernels of onnxruntime 1.31, measured: masks are finite and added (a query whose keys
are all masked keeps its scores), hidden later keys get the least float whatever else masks them, the last query sees
every key, and the kernels compute in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from softq.forms import Inside, Match, refuse
from softq.forms.matching.operators import find_refusal, refuse_reference
from softq.graph.bodies import format_float
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operand, operator_label
from softq.site import MaskedRow, MaskKind

FLOAT = int(ir.DataType.FLOAT)

_LEAST = -3.4028234663852886e38
"""The least float32, which the kernels write over the scores' mask at later keys."""

_TYPES = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
"""What onnxruntime's CPU kernels run: float32, and float16 between casts that it inserts."""


@dataclass(frozen=True)
class KeyMask:
    """How keys are masked.

    Attributes:
        rank: Rank of the mask: 1 for the number of keys (and perhaps the first key) of each sample, 2 for a number per
            key, 3 for one per query and key; 0 if there is none.
        starts: Whether a mask of rank 1 may hold the first key of each sample behind the numbers of keys.
        dummy: Whether a mask of rank 2 counts as absent if it has one column and there are more keys.
        causal: Whether later keys are hidden.
        value: What is added at masked keys.
    """

    rank: int
    starts: bool
    dummy: bool
    causal: bool
    value: float

    @property
    def kind(self) -> MaskKind:
        """Return how it shows in the scores."""
        return "additive" if self.rank or self.causal else "none"


def read_mask(node: ir.Node, place: int, facts: Facts, *, starts: bool) -> KeyMask | None:
    """Return how an operator masks, None where the rank of its mask is not known or more than 3.

    Args:
        node: The operator.
        place: Which of its inputs is the mask.
        facts: Shapes of the model.
        starts: Whether the operator takes the first key of each sample, and a mask of one column for none.
    """
    mask, attributes = operand(node, place), node.attributes
    shape = facts.shape(mask)
    if mask is not None and (shape is None or not 1 <= len(shape) <= 3):
        return None
    column = shape is not None and len(shape) == 2 and (not isinstance(shape[1], int) or shape[1] == 1)
    return KeyMask(
        rank=0 if shape is None else len(shape),
        starts=starts,
        dummy=starts and column,
        causal=attributes.get_int("unidirectional", 0) == 1,
        value=attributes.get_float("mask_filter_value", -10000.0),
    )


def refuse_heads(node: ir.Node, facts: Facts, needed: Sequence[int]) -> str:
    """Return why an operator cannot be opened for what holds of both; empty if it can.

    Args:
        node: The operator.
        facts: Types and shapes of the model.
        needed: Inputs that must be there.
    """
    name, kind = node_label(node), operator_label(node)
    first = operand(node, 0)
    if first is None or any(operand(node, place) is None for place in needed):
        return f"node {name} is a {kind} without all the inputs that onnxruntime's CPU kernel needs"
    general = refuse_reference(node) or find_refusal(node, first, facts)
    if general:
        return general
    dtype = facts.dtype(first)
    if dtype not in _TYPES:
        what = "an unknown type" if dtype is None else dtype.name.lower()
        return f"node {name} is a {kind} of {what}, which onnxruntime's CPU kernel does not run"
    if node.attributes.get_int("num_heads", 0) < 1:
        return f"node {name} is a {kind} without heads"
    if not math.isfinite(node.attributes.get_float("scale", 0.0)):
        return f"node {name} is a {kind} with a scale that is not finite"
    return ""


def match_heads(
    node: ir.Node, why: str, keys: int | str | None, mask: KeyMask | None, facts: Facts, *, has_bias: bool
) -> Match:
    """Return the match of an operator; its kernels compute the softmax in float32.

    Args:
        node: The operator.
        why: Why it cannot be opened; empty if it can.
        keys: The number of keys with the past ones; None where it is not known.
        mask: How it masks; None if that is not known.
        facts: Shapes of the model.
        has_bias: Whether a bias is added to the scores.
    """
    query = facts.shape(operand(node, 0))
    shape = None if query is None else (query[0], node.attributes.get_int("num_heads", 0), query[1], keys)
    kind: MaskKind = "unproven" if has_bias else "none"
    row: MaskedRow = "nan"
    if mask is not None and mask.kind != "none":
        kind = mask.kind
        row = "nan" if math.isinf(mask.value) else "scores" if mask.rank else "uniform"
    inside = Inside(ir.DataType.FLOAT, shape, kind, row)
    return Match(operator_label(node), None, None, -1, refuse(why), inside=inside)


def is_named(node: ir.Node, place: int) -> bool:
    """Return whether an output is there."""
    return place < len(node.outputs) and bool(node.outputs[place].name)


def widen(names: Sequence[str]) -> list[str]:
    """Return lines that cast each `NAME` to float32 as `NAMEF`."""
    return [f"{name}F = Cast <to: int = {FLOAT}> ({name})" for name in names]


def split_heads(source: str, result: str, heads: int, size: int) -> list[str]:
    """Return lines from [batch, sequence, heads * size] to [batch, heads, sequence, size]."""
    return [
        f"{result}Split = Constant <value: tensor = int64[4] {{0, 0, {heads}, {size}}}> ()",
        f"{result}Heads = Reshape ({source}, {result}Split)",
        f"{result} = Transpose <perm: ints = [0, 2, 1, 3]> ({result}Heads)",
    ]


def attend(node: ir.Node, mask: KeyMask, name: str, head_size: int, hidden: int, has_bias: bool) -> list[str]:
    """Return lines from `Q`, `K` and `V` (heads first, past keys included) to `Scores`, `Masked` and `Y`.

    Args:
        node: The operator.
        mask: How it masks; `name` is its input, `PastLength` the number of past keys.
        name: See `mask`.
        head_size: Width of a head of Q and K.
        hidden: Width of the output: all heads of V.
        has_bias: Whether `attention_biasF` is added.
    """
    scale = node.attributes.get_float("scale", 0.0) or 1.0 / math.sqrt(head_size)
    lines = [
        "KT = Transpose <perm: ints = [0, 1, 3, 2]> (K)",
        "QK = MatMul (Q, KT)",
        f"Scale = Constant <value: tensor = float {{{format_float(scale)}}}> ()",
        "Scores = Mul (QK, Scale)",
    ]
    added = "attention_biasF" if has_bias else ""
    if mask.rank or mask.causal:
        lines += _mask_lines(mask, name)
        lines += ["Added = Add (attention_biasF, Hidden)"] if has_bias else []
        added = "Added" if has_bias else "Hidden"
    lines.append(f"Masked = Add (Scores, {added})" if added else "Masked = Identity (Scores)")
    return [
        *lines,
        "P = Softmax <axis: int = -1> (Masked)",
        "PV = MatMul (P, V)",
        "Rows = Transpose <perm: ints = [0, 2, 1, 3]> (PV)",
        f"Joined = Constant <value: tensor = int64[3] {{0, 0, {hidden}}}> ()",
        "Y = Reshape (Rows, Joined)",
    ]


def _mask_lines(mask: KeyMask, name: str) -> list[str]:
    """Return lines that make `Hidden`, what the mask adds to the scores."""
    lines = [
        "Zero = Constant <value: tensor = int64[1] {0}> ()",
        "One = Constant <value: tensor = int64[1] {1}> ()",
        "Zero0 = Constant <value: tensor = int64 {0}> ()",
        "One0 = Constant <value: tensor = int64 {1}> ()",
        "Batch = Shape <start: int = 0, end: int = 1> (Q)",
        "Queries = Shape <start: int = 2, end: int = 3> (Q)",
        "Keys = Shape <start: int = 2, end: int = 3> (K)",
        "Keys0 = Squeeze (Keys, Zero)",
        "Key = Range (Zero0, Keys0, One0)",
        "Nothing = Constant <value: tensor = float {0.0}> ()",
    ]
    added = "Nothing"
    if mask.rank:
        axes = {1: "1, 2, 3", 2: "1, 2", 3: "1"}[mask.rank]
        count = 4 - mask.rank
        lines += [
            f"Whole = Cast <to: int = {int(ir.DataType.INT64)}> ({name})",
            f"MaskAxes = Constant <value: tensor = int64[{count}] {{{axes}}}> ()",
            f"Filter = Constant <value: tensor = float {{{format_float(mask.value)}}}> ()",
        ]
        lines += _length_lines(mask) if mask.rank == 1 else _flag_lines(mask)
        lines.append("Filtered = Where (Kept, Nothing, Filter)")
        added = "Filtered"
    if mask.causal:
        lines += [
            "Queries0 = Squeeze (Queries, Zero)",
            "Query1 = Range (Zero0, Queries0, One0)",
            "Query = Unsqueeze (Query1, One)",
            "Position = Add (Query, PastLength)",
            "Later = Less (Position, Key)",
            "LastQuery = Sub (Queries, One)",
            "NotLast = Less (Query, LastQuery)",
            "Future = And (Later, NotLast)",
            f"Least = Constant <value: tensor = float {{{format_float(_LEAST)}}}> ()",
            f"Hidden = Where (Future, Least, {added})",
        ]
    else:
        lines.append(f"Hidden = Identity ({added})")
    return lines


def _length_lines(mask: KeyMask) -> list[str]:
    """Return lines that make `Kept` of the number of keys of each sample, and perhaps of the first one."""
    lines = [
        "Lengths = Slice (Whole, Zero, Batch, Zero)",
        "Length = Unsqueeze (Lengths, MaskAxes)",
        "Before = Less (Key, Length)",
    ]
    if not mask.starts:
        return [*lines, "Kept = Identity (Before)"]
    return [
        *lines,
        "Two = Constant <value: tensor = int64[1] {2}> ()",
        "Twice = Mul (Batch, Two)",
        "Numbers = Shape (Whole)",
        "HasStarts = Equal (Numbers, Twice)",
        "Padding = Expand (Zero, Batch)",
        "Longer = Concat <axis: int = 0> (Whole, Padding)",
        "Second = Slice (Longer, Batch, Twice, Zero)",
        "Starts = Where (HasStarts, Second, Zero)",
        "Start = Unsqueeze (Starts, MaskAxes)",
        "Behind = GreaterOrEqual (Key, Start)",
        "Kept = And (Before, Behind)",
    ]


def _flag_lines(mask: KeyMask) -> list[str]:
    """Return lines that make `Kept` of a number for each key, which is above zero where the key counts."""
    lines = ["Flags = Greater (Whole, Zero)", "Flag = Unsqueeze (Flags, MaskAxes)"]
    if not mask.dummy:
        return [*lines, "Kept = Identity (Flag)"]
    return [
        *lines,
        "Columns = Shape <start: int = 1, end: int = 2> (Whole)",
        "IsColumn = Equal (Columns, One)",
        "OneKey = Equal (Keys, One)",
        "ManyKeys = Not (OneKey)",
        "Ignored = And (IsColumn, ManyKeys)",
        "Kept = Or (Flag, Ignored)",
    ]
