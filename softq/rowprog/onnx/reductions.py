"""Reductions, and what onnxruntime's of int64 need: they are not exact beyond what a double or 32 bits hold."""

from __future__ import annotations

import onnx_ir as ir

from softq.rowprog.onnx.carriers import Carrier
from softq.rowprog.onnx.shifts import floor_shift
from softq.rowprog.onnx.walker import INT64, UINT64, Emitted, Rule, Walker
from softq.rowprog.program import Node, number_of
from softq.rowprog.types import DType

_FLOAT, _DOUBLE = 2**24, 2**53
"""Up to here a float and a double hold every integer, and so every part of a sum in any order."""

_LOW_BITS = 20
"""So many lower bits of 2^31 elements have a sum below 2^53, and so has what is above them if the whole fits int64."""


def row_sum(w: Walker, node: Node) -> Emitted:
    """Write a sum; onnxruntime 1.31 sums int64 in double, so great ones are summed in two parts."""
    kind = w.common(node, 0)  # a sum may need a wider carrier than its elements
    interval = w.proof.interval(node.args[0])
    greatest = max(-interval.low, interval.high) * w.proof.max_length
    if not node.dtype.is_float and greatest <= _FLOAT:
        # onnxruntime sums floats six times as fast as integers.
        total = w.reduced("ReduceSum", w.full(node.args[0], Carrier.FLOAT)[0])
        w.keep_float(node, lambda: total)
        return w.cast(total, kind.value), kind
    value, _ = w.full(node.args[0], kind)
    if kind is not Carrier.INT64 or greatest <= _DOUBLE:
        return w.reduced("ReduceSum", value), kind
    unit = w.constant(2**_LOW_BITS, INT64)
    upper = floor_shift(w, value, w.constant(_LOW_BITS, INT64), kind, interval.low)
    lower = w.add("Sub", value, w.add("Mul", upper, unit))
    sums = [w.reduced("ReduceSum", part) for part in (upper, lower)]
    return w.add("Add", w.add("Mul", sums[0], unit), sums[1]), kind


def row_extreme(op: str) -> Rule:
    """Return the rule of `ReduceMax` or `ReduceMin`."""

    def rule(w: Walker, node: Node) -> Emitted:
        if op == "ReduceMax" and is_indicator(node.args[0]):
            # Whether any condition holds: bytes are the least that onnxruntime reduces.
            condition = node.args[0].args[0]
            if w.is_full(condition):
                found = w.reduced(op, w.cast(w.compute(condition)[0], ir.DataType.UINT8))
                return w.cast(found, Carrier.INT32.value), Carrier.INT32
        value, kind = w.full(node.args[0])
        return (_wide_extreme(w, op, value) if kind is Carrier.INT64 else w.reduced(op, value)), kind

    return rule


def _wide_extreme(w: Walker, op: str, value: ir.Value) -> ir.Value:
    """Reduce the upper halves, then the lower halves where the upper half is the best one.

    onnxruntime 1.31's ReduceMax and ReduceMin of int64 compare the lower halves as signed numbers, as its Max does.
    """
    half = w.constant(2**31, INT64)
    bits = w.add("BitShift", w.cast(value, ir.DataType.UINT64), w.constant(32, UINT64), direction="RIGHT")
    upper = w.cast(bits, ir.DataType.INT32)
    # The lower half is less than 2^32: it is moved to where int32 holds it.
    unsigned = w.cast(w.cast(value, ir.DataType.UINT32), ir.DataType.INT64)
    lower = w.cast(w.add("Sub", unsigned, half), ir.DataType.INT32)
    best = w.add(op, upper, w.last_axis(), keepdims=1)
    none = w.like(DType.I32.low if op == "ReduceMax" else DType.I32.high, Carrier.INT32)
    lower = w.reduced(op, w.add("Where", w.add("Equal", upper, best), lower, none))
    high = w.add("Mul", w.cast(w.flattened(best), ir.DataType.INT64), w.constant(2**32, INT64))
    return w.add("Add", high, w.add("Add", w.cast(lower, ir.DataType.INT64), half))


def is_indicator(node: Node) -> bool:
    """Say whether this is 1 where a condition holds and 0 elsewhere."""
    if node.op != "select" or node.dtype.is_float or node.dtype is DType.BOOL:
        return False
    yes, no = node.args[1:]
    return yes.op == no.op == "const" and (number_of(yes), number_of(no)) == (1, 0)
