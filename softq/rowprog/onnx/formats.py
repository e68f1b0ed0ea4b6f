"""Rounding to formats of few bits, and maxima over groups of elements, in standard operators."""

from __future__ import annotations

import math

import onnx_ir as ir

from softq.rowprog.formats import Format, format_of
from softq.rowprog.onnx.carriers import Carrier
from softq.rowprog.onnx.walker import INT64, Emitted, Walker
from softq.rowprog.program import Node, size_of

_CASTS: dict[str, tuple[ir.DataType, int, str]] = {
    "e4m3": (ir.DataType.FLOAT8E4M3FN, 19, ""),
    "e5m2": (ir.DataType.FLOAT8E5M2, 19, ""),
    "e8m0": (ir.DataType.FLOAT8E8M0, 24, "down"),
    "e8m0-nearest": (ir.DataType.FLOAT8E8M0, 24, "nearest"),
    "e8m0-up": (ir.DataType.FLOAT8E8M0, 24, "up"),
    "bf16": (ir.DataType.BFLOAT16, 18, ""),
    "f16": (ir.DataType.FLOAT16, 18, ""),
}
"""What ONNX calls a format, the first opset whose Cast has it, and how that rounds to powers of two.

tests/test_formats.py compares onnxruntime's casts. It has none to FLOAT4E2M1 (1.31, all opsets).
"""


def round_to(w: Walker, node: Node) -> Emitted:
    """Write a rounding: two casts where they mean the same, else the program's own arithmetic."""
    form, x = format_of(node), node.args[0]
    if form.name not in _CASTS or w.opset < _CASTS[form.name][1] or not _agrees(w, form, x):
        return w.arg(node, 1, Carrier.FLOAT), Carrier.FLOAT
    kind, _, direction = _CASTS[form.name]
    how = {"round_mode": direction} if direction else {}
    narrow = w.add("Cast", w.arg(node, 0, Carrier.FLOAT), to=int(kind), **how)
    return w.cast(narrow, ir.DataType.FLOAT), Carrier.FLOAT


def _agrees(w: Walker, form: Format, x: Node) -> bool:
    """Say whether a cast saturates, or nothing is there that would have to."""
    interval = w.proof.interval(x)
    return form.bits == 8 or max(-interval.low, interval.high) <= form.greatest


def group_max(w: Walker, node: Node) -> Emitted:
    """Write the greatest of each element's group: the row filled up to whole groups, folded and unfolded."""
    size, (x, _) = size_of(node), w.full(node.args[0], Carrier.FLOAT)
    one, many = w.constant([size], INT64), w.constant([size - 1], INT64)
    length, lead = w.add("Shape", x, start=-1), w.add("Shape", x, end=-1)
    groups = w.add("Div", w.add("Add", length, many), one)
    filled = w.add("Mul", groups, one)
    pads = w.add("Concat", w.constant([0], INT64), w.add("Sub", filled, length), axis=0)
    padded = w.add("Pad", x, pads, w.like(-math.inf, Carrier.FLOAT), w.last_axis())
    folded = w.add("Concat", lead, groups, one, axis=0)
    best = w.add("ReduceMax", w.add("Reshape", padded, folded, allowzero=1), w.last_axis(), keepdims=1)
    row = w.add("Concat", lead, filled, axis=0)
    each = w.add("Reshape", w.add("Expand", best, folded), row, allowzero=1)
    return w.add("Slice", each, w.constant([0], INT64), length, w.last_axis()), Carrier.FLOAT
