"""How each operator is written in ONNX: a value of the program becomes one node, or a few."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from softq.rowprog.onnx.carriers import Carrier, carrier
from softq.rowprog.onnx.formats import group_max, round_to
from softq.rowprog.onnx.interface import offsets_among, parameter_input
from softq.rowprog.onnx.loop import scan
from softq.rowprog.onnx.reductions import is_indicator, row_extreme, row_sum
from softq.rowprog.onnx.shifts import power_of_two, shl, shr
from softq.rowprog.onnx.walker import INT64, Emitted, Rule, Walker
from softq.rowprog.ops import Rules
from softq.rowprog.program import Node, number_of, param_of, table_of, table_size
from softq.rowprog.types import DType, Kind

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
    return w.given(number_of(node), kind), kind


def _table(w: Walker, node: Node) -> Emitted:
    values = table_of(node)
    kind = carrier(node.dtype, min(values), max(values))
    return w.given(values, kind), kind


def _index(w: Walker, node: Node) -> Emitted:
    length = w.add("Squeeze", w.add("Shape", w.inputs["scores"], start=-1), w.constant([0], INT64))
    positions = w.add("Range", w.constant(0, INT64), length, w.constant(1, INT64))
    return w.cast(positions, ir.DataType.INT32), Carrier.INT32


def _length(w: Walker, node: Node) -> Emitted:
    length = w.add("Squeeze", w.add("Shape", w.inputs["scores"], start=-1), w.constant([0], INT64))
    return w.cast(length, ir.DataType.INT32), Carrier.INT32


# Arithmetic


def _binary(op: str, result: Carrier | None = None) -> Rule:
    """Return the rule of an operator whose operands have one carrier; so has the result, if none is given."""

    def rule(w: Walker, node: Node) -> Emitted:
        kind = w.common(node, 0, 1)
        return w.add(op, w.arg(node, 0, kind), w.arg(node, 1, kind)), result or kind

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
        if unordered and op == "Max" and _is_zero(node.args[1]):
            # x where x > 0, else 0, for a NaN too: onnxruntime computes it four times as fast as a Where.
            return w.add("ThresholdedRelu", a, alpha=0.0), kind
        if not unordered and w.proof.interval(node.args[1]).low == w.proof.interval(node.args[1]).high:
            # A clamp that the proof shows to change nothing.
            limit, interval = w.proof.interval(node.args[1]).low, w.proof.interval(node.args[0])
            if (interval.low >= limit) if op == "Max" else (interval.high <= limit):
                return a, kind
        if unordered or kind is Carrier.INT64:
            # The select form: runtimes disagree on which operand a NaN makes of Min and Max, and onnxruntime
            # 1.31 compares the lower halves of int64 as signed numbers: its Max of 2^31 and 0 is 0.
            pair = (a, b) if op == "Min" else (b, a)
            return w.add("Where", w.add("Less", *pair), a, b), kind
        return w.add(op, a, b), kind

    return rule


# Logic


def _logic(op: str) -> Rule:
    return lambda w, node: (w.add(op, *(w.arg(node, i) for i in range(len(node.args)))), Carrier.BOOL)


def _is_number(node: Node) -> bool:
    """Say whether this is x = x of floats: the one test for NaN that the language has."""
    return node.op == "eq" and node.args[0] is node.args[1] and node.args[0].dtype.is_float


def _is_zero(node: Node) -> bool:
    return node.op == "const" and number_of(node) == 0 and math.copysign(1, number_of(node)) > 0


def _equal(w: Walker, node: Node) -> Emitted:
    if _is_number(node):
        return w.add("Not", w.add("IsNaN", w.arg(node, 0))), Carrier.BOOL
    return _binary("Equal", Carrier.BOOL)(w, node)


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
    if is_indicator(node):
        return w.cast(condition, kind.value), kind
    interval = w.proof.interval(yes)
    if node.dtype.is_float and _is_zero(no) and interval.low >= 0 and interval.high < math.inf and not interval.nan:
        # onnxruntime takes a third of the time of a Where.
        return w.add("Mul", w.arg(node, 1), w.cast(condition, ir.DataType.FLOAT)), Carrier.FLOAT
    return w.add("Where", condition, w.arg(node, 1, kind), w.arg(node, 2, kind)), kind


# Conversion and floats


def _cast(w: Walker, node: Node) -> Emitted:
    kind = w.carrier_of(node)
    source = node.args[0]
    rounded = _find_saturated(node)
    if rounded is not None:
        # One pass instead of three; what it makes of a NaN is a byte, too.
        zero = w.constant(0, np.dtype(np.uint8))
        byte = w.add("QuantizeLinear", w.carried(rounded, Carrier.FLOAT), w.like(1, Carrier.FLOAT), zero)
        w.keep_float(node, lambda: w.cast(byte, ir.DataType.FLOAT))
        return w.cast(byte, kind.value), kind
    if source.dtype.is_float and _is_integral(source) and _fits_float(w, node):
        w.keep_float(node, lambda: w.arg(node, 0))
    elif not node.dtype.is_float and not source.dtype.is_float and w.is_float(source):
        w.keep_float(node, lambda: w.arg(node, 0, Carrier.FLOAT))
    return w.arg(node, 0, kind), kind


def _find_saturated(node: Node) -> Node | None:
    """Return what is rounded, clamped to all numbers of a byte, and cast to one."""
    if node.dtype is not DType.U8 or node.kind is not Kind.ROW:
        return None
    for op, limit in (("min", node.dtype.high), ("max", node.dtype.low)):
        node = node.args[0]
        if node.op != op or node.args[1].op != "const" or number_of(node.args[1]) != limit:
            return None
    return node.args[0].args[0] if node.args[0].op == "rint" else None


def _is_integral(node: Node) -> bool:
    """Say whether a float is an integer by its operators alone."""
    if node.op == "const":
        return float(number_of(node)).is_integer()
    if node.op in ("min", "max"):
        return all(_is_integral(arg) for arg in node.args)
    return node.op == "rint"


def _fits_float(w: Walker, node: Node) -> bool:
    interval = w.proof.interval(node)
    return -(2**24) <= interval.low and interval.high <= 2**24


def _function(op: str) -> Rule:
    return lambda w, node: (w.add(op, w.arg(node, 0)), Carrier.FLOAT)


def _log2(w: Walker, node: Node) -> Emitted:
    return w.add("Mul", w.add("Log", w.arg(node, 0)), w.like(1 / math.log(2), Carrier.FLOAT)), Carrier.FLOAT


# Lookups


def _lut(w: Walker, node: Node) -> Emitted:
    table, index = node.args
    if index.op == "lut" and index.kind is Kind.ROW and not (_is_of_heads(table) or _is_of_heads(index.args[0])):
        # What is looked up of entries is a table itself: a row is looked up once.
        codes, at = w.compute(index.args[0])[0], w.arg(index, 1)
        values, kind = w.compute(table)
        if table.op == "table" and kind is Carrier.INT32 and _fits_float(w, table):
            w.keep_float(node, lambda: _look_up(w, _look_up(w, w.given(table_of(table), Carrier.FLOAT), codes), at))
        return _look_up(w, _look_up(w, values, codes), at), kind
    at = w.arg(node, 1)
    if _is_of_heads(table):
        # The tables of all heads are one.
        heads = offsets_among(w.inputs, table_size(table))
        heads = heads if node.kind is Kind.ROW else w.flattened(heads, w.column_shape())
        at = w.add("Add", w.arg(node, 1, Carrier.INT64), heads)
    values, kind = w.compute(table)
    if table.op == "table" and kind is Carrier.INT32 and _fits_float(w, table):
        w.keep_float(node, lambda: _look_up(w, w.given(table_of(table), Carrier.FLOAT), at))
    return _look_up(w, values, at), kind


def _is_of_heads(table: Node) -> bool:
    return table.op == "param" and param_of(table).scope == "head"


def _look_up(w: Walker, values: ir.Value, at: ir.Value) -> ir.Value:
    """Return the entries at positions: by GatherElements of one long row, in onnxruntime a tenth of Gather's time."""
    row = w.constant([1, -1], INT64)
    found = w.add("GatherElements", w.add("Reshape", values, row), w.add("Reshape", at, row), axis=1)
    return w.add("Reshape", found, w.add("Shape", at), allowzero=1)


def _exp2i(w: Walker, node: Node) -> Emitted:
    exponent, sign = node.args[0], 1
    if exponent.op == "cast" and exponent.args[0].op == "sub" and _is_zero(exponent.args[0].args[0]):
        negative = exponent.args[0].args[1]
        if _is_integral(negative):
            exponent, sign = negative, -1  # 2^-x is looked up at x
    interval = w.proof.interval(exponent)
    low, high = int(interval.low), int(interval.high)
    powers = w.constant(2.0 ** (sign * np.arange(low, high + 1, dtype=np.float64)), Carrier.FLOAT.numpy)
    value, carried = w.compute(exponent)
    at = value if exponent.dtype.is_integer else w.cast(value, ir.DataType.INT32)
    if low:
        at = w.add("Sub", at, w.like(low, carried if exponent.dtype.is_integer else Carrier.INT32))
    return _look_up(w, powers, at), Carrier.FLOAT


def _normalize(w: Walker, node: Node) -> Emitted:
    x = w.arg(node, 0, Carrier.INT64)
    # The shift is the number of powers of two above x among 2^0 to 2^31.
    column = w.add("Reshape", x, w.constant([-1, 1], INT64))
    above = w.add("Less", column, w.constant(2 ** np.arange(32, dtype=np.int64), INT64))
    count = w.add("ReduceSum", w.cast(above, ir.DataType.INT32), w.last_axis(), keepdims=1)
    shift = w.add("Reshape", count, w.add("Shape", x), allowzero=1)
    if node.attrs["part"] == "shift":
        return shift, Carrier.INT32
    return w.add("Mul", x, power_of_two(w, shift, 31)), Carrier.INT64


RULES: Rules[Rule] = Rules(
    "the ONNX emitter",
    {
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
        "lt": _binary("Less", Carrier.BOOL),
        "le": _binary("LessOrEqual", Carrier.BOOL),
        "eq": _equal,
        "and": _logic("And"),
        "or": _logic("Or"),
        "not": _not,
        "select": _select,
        "cast": _cast,
        "rint": _function("Round"),
        "round_to": round_to,
        "group_max": group_max,
        "lut": _lut,
        "exp2i": _exp2i,
        "normalize": _normalize,
        "log2": _log2,
        "sqrt": _function("Sqrt"),
        "row_max": row_extreme("ReduceMax"),
        "row_min": row_extreme("ReduceMin"),
        "row_sum": row_sum,
        "exp_minus": lambda w, node: (w.add("Exp", w.add("Neg", w.arg(node, 0))), Carrier.FLOAT),
        "assume": lambda w, node: (w.arg(node, 0), w.compute(node.args[0])[1]),
        "scan": scan,
    },
)
