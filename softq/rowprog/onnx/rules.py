"""How each operator is written in ONNX: a value of the program becomes one node, or a few."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from softq.rowprog.onnx.carriers import Carrier, carrier
from softq.rowprog.onnx.interface import HEADS, parameter_input
from softq.rowprog.onnx.lookups import Exponential, Shift, closed_form
from softq.rowprog.onnx.reductions import row_extreme, row_sum
from softq.rowprog.onnx.shifts import power_of_two, shl, shr, unsigned_shift
from softq.rowprog.onnx.walker import INT64, Emitted, Rule, Walker
from softq.rowprog.program import Node, number_of, param_of, table_of
from softq.rowprog.types import DType

# Leaves


def _input(w: Walker, node: Node) -> Emitted:
    name = str(node.attrs["name"])
    if name == "valid":
        return w.inputs[name], Carrier.BOOL
    kind = w.carrier_of(node)
    return w.cast(w.inputs[name], kind.value), kind  # float16 and bfloat16 scores become float32 here


def _param(w: Walker, node: Node) -> Emitted:
    param = param_of(node)
    return w.inputs[parameter_input(param)], carrier(param.dtype, param.low, param.high)


def _const(w: Walker, node: Node) -> Emitted:
    kind = w.carrier_of(node)
    return w.like(number_of(node), kind), kind


def _table(w: Walker, node: Node) -> Emitted:
    values = table_of(node)
    kind = carrier(node.dtype, min(values), max(values))
    return w.constant(values, kind.numpy), kind


def _index(w: Walker, node: Node) -> Emitted:
    length = w.add("Squeeze", w.add("Shape", w.inputs["scores"], start=-1), w.constant([0], INT64))
    positions = w.add("Range", w.constant(0, INT64), length, w.constant(1, INT64))
    return w.cast(positions, ir.DataType.INT32), Carrier.INT32


def _length(w: Walker, node: Node) -> Emitted:
    return w.cast(w.add("Shape", w.inputs["scores"], start=-1), ir.DataType.INT32), Carrier.INT32


# Arithmetic


def _binary(op: str) -> Rule:
    def rule(w: Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        return w.add(op, w.arg(node, 0, kind), w.arg(node, 1, kind)), kind

    return rule


def _divide(w: Walker, node: Node) -> Emitted:
    dividend = node.args[0]
    if dividend.op == "const" and number_of(dividend) == 1 and node.dtype.is_float:
        # onnxruntime makes (1 / x) * y one division, which rounds once; it leaves -(-1 / x) alone.
        return w.add("Neg", w.add("Div", w.like(-1, Carrier.FLOAT), w.arg(node, 1))), Carrier.FLOAT
    return _binary("Div")(w, node)


def _extreme(op: str) -> Rule:
    def rule(w: Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        a, b = w.arg(node, 0, kind), w.arg(node, 1, kind)
        unordered = node.dtype.is_float and any(w.proof.interval(arg).nan for arg in node.args)
        if unordered or kind is Carrier.INT64:
            # The select form: runtimes disagree on which operand a NaN makes of Min and Max, and onnxruntime
            # 1.31 compares the lower halves of int64 as signed numbers: its Max of 2^31 and 0 is 0.
            pair = (a, b) if op == "Min" else (b, a)
            return w.add("Where", w.add("Less", *pair), a, b), kind
        return w.add(op, a, b), kind

    return rule


# Logic


def _compare(op: str) -> Rule:
    def rule(w: Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        return w.add(op, w.arg(node, 0, kind), w.arg(node, 1, kind)), Carrier.BOOL

    return rule


def _logic(op: str) -> Rule:
    return lambda w, node: (w.add(op, *(w.arg(node, i) for i in range(len(node.args)))), Carrier.BOOL)


def _is_number(node: Node) -> bool:
    """Say whether this is x = x of floats: the one test for NaN that the language has."""
    return node.op == "eq" and node.args[0] is node.args[1] and node.args[0].dtype.is_float


def _equal(w: Walker, node: Node) -> Emitted:
    if _is_number(node):
        return w.add("Not", w.add("IsNaN", w.arg(node, 0))), Carrier.BOOL
    return _compare("Equal")(w, node)


def _not(w: Walker, node: Node) -> Emitted:
    if _is_number(node.args[0]):
        return w.add("IsNaN", w.arg(node.args[0], 0)), Carrier.BOOL
    return w.add("Not", w.arg(node, 0)), Carrier.BOOL


def _select(w: Walker, node: Node) -> Emitted:
    condition, (yes, no) = w.arg(node, 0), node.args[1:]
    if node.dtype is DType.BOOL:
        # onnxruntime has no Where for bool.
        chosen = w.add("And", condition, w.arg(node, 1)), w.add("And", w.add("Not", condition), w.arg(node, 2))
        return w.add("Or", *chosen), Carrier.BOOL
    kind = w.common(node, 1, 2)
    if yes.op == no.op == "const" and (number_of(yes), number_of(no)) == (1, 0) and not node.dtype.is_float:
        return w.cast(condition, kind.value), kind
    return w.add("Where", condition, w.arg(node, 1, kind), w.arg(node, 2, kind)), kind


# Conversion and floats


def _cast(w: Walker, node: Node) -> Emitted:
    kind = w.carrier_of(node)
    return w.arg(node, 0, kind), kind


def _function(op: str) -> Rule:
    return lambda w, node: (w.add(op, w.arg(node, 0)), Carrier.FLOAT)


def _log2(w: Walker, node: Node) -> Emitted:
    return w.add("Mul", w.add("Log", w.arg(node, 0)), w.like(1 / math.log(2), Carrier.FLOAT)), Carrier.FLOAT


# Lookups


def _lut(w: Walker, node: Node) -> Emitted:
    table = node.args[0]
    if table.op == "table":
        form = closed_form(table_of(table))
        if isinstance(form, Shift):
            return _lut_shift(w, node, form)
        if isinstance(form, Exponential):
            return _lut_exponential(w, node, form)
    at = w.arg(node, 1)
    if table.op == "param" and param_of(table).scope == "head":
        at = w.add("Add", w.arg(node, 1, Carrier.INT64), w.inputs[HEADS])
    values, kind = w.compute(table)
    # The tables of all heads are one.
    size = len(table_of(table)) if table.op == "table" else _FEW + 1
    return _looked_up(w, values, at, size), kind


_FEW = 32
"""Entries of a table up to which every runtime has GatherElements: onnx's ReferenceEvaluator takes no more."""


def _looked_up(w: Walker, values: ir.Value, at: ir.Value, size: int) -> ir.Value:
    """Return the entries at positions: by GatherElements of one long row, in onnxruntime a tenth of Gather's time."""
    if size > _FEW:
        return w.add("Gather", values, at)
    row = w.constant([1, -1], INT64)
    found = w.add("GatherElements", w.add("Reshape", values, row), w.add("Reshape", at, row), axis=1)
    return w.add("Reshape", found, w.add("Shape", at), allowzero=1)


def _lut_shift(w: Walker, node: Node, form: Shift) -> Emitted:
    unsigned = ir.DataType.UINT32 if form.bits == 32 else ir.DataType.UINT64
    first = w.constant(form.first, np.dtype(unsigned.numpy()))
    kind = w.carrier_of(node)
    shifted = w.cast(w.add("BitShift", first, w.cast(w.arg(node, 1), unsigned), direction="RIGHT"), kind.value)
    return shifted if form.scale == 1 else w.add("Mul", shifted, w.like(form.scale, kind)), kind


def _lut_exponential(w: Walker, node: Node, form: Exponential) -> Emitted:
    at, kind = w.arg(node, 1, Carrier.FLOAT), w.carrier_of(node)
    power = w.add("Exp", w.add("Mul", at, w.like(-form.rate, Carrier.FLOAT)))
    rounded = w.add("Round", w.add("Mul", power, w.like(form.first, Carrier.FLOAT)))
    if form.end < len(table_of(node.args[0])):
        inside = w.add("Less", at, w.like(form.end, Carrier.FLOAT))
        rounded = w.add("Where", inside, rounded, w.like(0, Carrier.FLOAT))
    return w.cast(rounded, kind.value), kind


def _exp2i(w: Walker, node: Node) -> Emitted:
    n, interval = w.arg(node, 0, Carrier.INT32), w.proof.interval(node.args[0])
    low, high = int(interval.low), int(interval.high)
    if -62 <= low and high <= 0:
        # A shifted power of two is exact as a float, and so is its product with a power of two.
        by = w.add("Sub", w.like(0, Carrier.INT32), n)
        shifted = unsigned_shift(w, w.constant(1 << -low, INT64), by, Carrier.INT64, "RIGHT")
        return w.add("Mul", w.cast(shifted, ir.DataType.FLOAT), w.like(2.0**low, Carrier.FLOAT)), Carrier.FLOAT
    powers = w.constant(2.0 ** np.arange(low, high + 1, dtype=np.float64), Carrier.FLOAT.numpy)
    at = w.add("Sub", n, w.like(low, Carrier.INT32))
    return _looked_up(w, powers, at, high - low + 1), Carrier.FLOAT


def _normalize(w: Walker, node: Node) -> Emitted:
    x = w.arg(node, 0, Carrier.INT64)
    # The shift is the number of powers of two above x among 2^0 to 2^31.
    above = w.add("Less", x, w.constant(2 ** np.arange(32, dtype=np.int64), INT64))
    shift = w.add("ReduceSum", w.cast(above, ir.DataType.INT32), w.last_axis(), keepdims=1)
    if node.attrs["part"] == "shift":
        return shift, Carrier.INT32
    return w.add("Mul", x, power_of_two(w, shift, 31)), Carrier.INT64


RULES: Mapping[str, Rule] = {
    "input": _input,
    "param": _param,
    "const": _const,
    "table": _table,
    "index": _index,
    "length": _length,
    "add": _binary("Add"),
    "sub": _binary("Sub"),
    "mul": _binary("Mul"),
    "divide": _divide,
    "min": _extreme("Min"),
    "max": _extreme("Max"),
    "shl": shl,
    "shr": shr,
    "lt": _compare("Less"),
    "le": _compare("LessOrEqual"),
    "eq": _equal,
    "and": _logic("And"),
    "or": _logic("Or"),
    "not": _not,
    "select": _select,
    "cast": _cast,
    "rint": _function("Round"),
    "lut": _lut,
    "exp2i": _exp2i,
    "normalize": _normalize,
    "log2": _log2,
    "sqrt": _function("Sqrt"),
    "row_max": row_extreme("ReduceMax"),
    "row_min": row_extreme("ReduceMin"),
    "row_sum": row_sum,
    "assume": lambda w, node: w.compute(node.args[0]),
}
"""All operators but `scan`, which is written as a graph of its own."""
