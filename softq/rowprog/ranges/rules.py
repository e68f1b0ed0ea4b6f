"""What each elementwise operator does to intervals, and what it demands (`softq.rowprog.ops` states both)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from softq.rowprog.program import Node, number_of, param_of, table_of
from softq.rowprog.ranges import floats, integers
from softq.rowprog.ranges.bounds import NEVER, Array, Bools, Bounds, constant, packed, spanned
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.ranges.unproved import UnprovedError, require
from softq.rowprog.types import DType

Rule = Callable[[Node, Sequence[Bounds]], Bounds]
Positions = NDArray[np.int64]
_TWO_63 = 2.0**63


def _const(node: Node, args: Sequence[Bounds]) -> Bounds:
    value = number_of(node)
    return constant(value, value, node.dtype)


def _param(node: Node, args: Sequence[Bounds]) -> Bounds:
    param = param_of(node)
    return constant(param.low, param.high, node.dtype)


def _table(node: Node, args: Sequence[Bounds]) -> Bounds:
    entries = _entries(node)
    return Bounds(np.fmin.reduce(entries, axis=-1, keepdims=True), np.fmax.reduce(entries, axis=-1, keepdims=True))


def _entries(table: Node) -> Array:
    if table.dtype.is_float:
        return np.asarray(table_of(table), np.float32).reshape(1, -1)
    return packed(np.array([int(v) for v in table_of(table)], np.object_).reshape(1, -1))


def _add(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.add(*args) if node.dtype.is_float else integers.add(args[0], args[1], node.dtype)


def _sub(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.sub(*args) if node.dtype.is_float else integers.sub(args[0], args[1])


def _mul(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.mul(*args) if node.dtype.is_float else integers.mul(*args)


def _divide(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.divide(*args) if node.dtype.is_float else integers.divide(args[0], args[1], node.dtype)


def _min(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.minimum(*args) if node.dtype.is_float else integers.minimum(*args)


def _max(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.maximum(*args) if node.dtype.is_float else integers.maximum(*args)


def _shl(node: Node, args: Sequence[Bounds]) -> Bounds:
    return integers.shl(args[0], args[1], node.dtype)


def _shr(node: Node, args: Sequence[Bounds]) -> Bounds:
    return integers.shr(args[0], args[1], node.dtype)


def _truth(must: Bools, may: Bools) -> Bounds:
    low = must.astype(np.int64)
    return Bounds(low, low if np.array_equal(must, may) else may.astype(np.int64))


def _compare(
    surely: Callable[[Bounds, Bounds], Array], possibly: Callable[[Bounds, Bounds], Array], reflexive: bool
) -> Rule:
    def rule(node: Node, args: Sequence[Bounds]) -> Bounds:
        a, b = args
        numbers = np.logical_not(np.logical_or(a.nan, b.nan))
        if node.args[0] is node.args[1]:
            some = np.asarray(np.equal(a.low, a.low))
            return _truth(np.logical_and(numbers, reflexive), np.logical_and(some, reflexive))
        return _truth(np.logical_and(numbers, surely(a, b)), np.asarray(possibly(a, b), np.bool_))

    return rule


_lt = _compare(lambda a, b: np.less(a.high, b.low), lambda a, b: np.less(a.low, b.high), False)
_le = _compare(lambda a, b: np.less_equal(a.high, b.low), lambda a, b: np.less_equal(a.low, b.high), True)
_eq = _compare(
    lambda a, b: np.logical_and(np.equal(a.low, b.high), np.equal(a.high, b.low)),
    lambda a, b: np.logical_and(np.less_equal(a.low, b.high), np.less_equal(b.low, a.high)),
    True,
)


def _not(node: Node, args: Sequence[Bounds]) -> Bounds:
    return spanned([np.subtract(1, x) for x in args[0].ends])


def _and(node: Node, args: Sequence[Bounds]) -> Bounds:
    return integers.minimum(*args)


def _or(node: Node, args: Sequence[Bounds]) -> Bounds:
    return integers.maximum(*args)


def _cast(node: Node, args: Sequence[Bounds]) -> Bounds:
    (x,) = args
    if node.args[0].dtype.is_float:
        if node.dtype.is_float:
            return x
        require("the operand", x.interval, node.dtype.low, node.dtype.high)
        return spanned([_truncated(v) for v in x.ends])
    if node.dtype.is_float:
        return spanned([_rounded(v) for v in x.ends])
    return integers.fitting(x, node.dtype, "the operand")


def _truncated(values: Array) -> Array:
    if float(np.max(np.abs(values.astype(np.float64)))) < _TWO_63:
        return np.trunc(values).astype(np.int64)
    return np.array([int(v) for v in values.astype(np.float64).ravel()], np.object_).reshape(values.shape)


def _rounded(values: Array) -> Array:
    # From int64 or uint64 directly: by way of a double it would be rounded twice.
    return (values.astype(np.uint64) if values.dtype == np.object_ else values).astype(np.float32)


def _rint(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.rint(args[0])


def _lut(node: Node, args: Sequence[Bounds]) -> Bounds:
    table, at = node.args[0], args[1]
    size = len(table_of(table)) if table.op == "table" else param_of(table).size
    assert size is not None
    require("the index", at.interval, 0, size - 1)
    if table.op != "table":
        return args[0]
    first, last = (x.astype(np.int64) for x in (at.low, at.high))
    entries = _entries(table)[0]
    if at.low is at.high:
        values = np.take(entries, first)
        return Bounds(values, values, np.isnan(values) if table.dtype.is_float else NEVER)
    ends = [_between(entries, first, last, combine) for combine in (np.fmin, np.fmax)]
    nan = _between(np.isnan(entries), first, last, np.logical_or) if table.dtype.is_float else NEVER
    return Bounds(ends[0], ends[1], np.asarray(nan, np.bool_))


def _between(entries: Array, first: Positions, last: Positions, combine: np.ufunc) -> Array:
    """Return `combine` over entries[first..last], by two overlapping spans of a power of two."""
    levels = [entries]
    while 2 ** len(levels) <= len(entries):
        half = 2 ** (len(levels) - 1)
        levels.append(combine(levels[-1][:-half], levels[-1][half:]))
    spans = np.add(np.subtract(last, first), 1)
    level = np.subtract(np.frexp(spans.astype(np.float64))[1], 1)
    result = np.take(entries, first)
    for k, values in enumerate(levels):
        here = np.equal(level, k)
        left = np.where(here, first, 0)
        right = np.where(here, np.subtract(last, 2**k - 1), 0)
        result = np.where(here, combine(np.take(values, left), np.take(values, right)), result)
    return result


def _exp2i(node: Node, args: Sequence[Bounds]) -> Bounds:
    require("the exponent", args[0].interval, -126, 127)
    return spanned([np.ldexp(np.float32(1), x.astype(np.int32)).astype(np.float32) for x in args[0].ends])


def _normalize(node: Node, args: Sequence[Bounds]) -> Bounds:
    return integers.normalize(args[0], str(node.attrs["part"]))


def _log2(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.log2(args[0])


def _sqrt(node: Node, args: Sequence[Bounds]) -> Bounds:
    return floats.sqrt(args[0])


def _assume(node: Node, args: Sequence[Bounds]) -> Bounds:
    (x,) = args
    low, high = number_of(node, "low"), number_of(node, "high")
    stated = constant(low, high, node.dtype)
    ends = np.fmax(x.low, stated.low), np.fmin(x.high, stated.high)
    # Nothing of some cell remains, or a float cell has no number at all: the assumption is false there.
    if not bool(np.all(np.logical_and(np.less_equal(*ends), np.equal(x.low, x.low)))):
        raise UnprovedError("the operand", x.interval, f"what is assumed, {Interval(low, high)}")
    return x if x.low is x.high and not np.any(x.nan) else Bounds(*ends)


RULES: Mapping[str, Rule] = {
    "const": _const,
    "param": _param,
    "table": _table,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "divide": _divide,
    "min": _min,
    "max": _max,
    "shl": _shl,
    "shr": _shr,
    "lt": _lt,
    "le": _le,
    "eq": _eq,
    "and": _and,
    "or": _or,
    "not": _not,
    "cast": _cast,
    "rint": _rint,
    "lut": _lut,
    "exp2i": _exp2i,
    "normalize": _normalize,
    "log2": _log2,
    "sqrt": _sqrt,
    "exp_minus": lambda node, args: args[1],
    "assume": _assume,
}
"""All but the leaves that depend on the input, `select`, the reductions and `scan`: the analysis itself does those."""

NARROWED: tuple[str, ...] = ("sub", "mul", "shl", "divide")
"""Operators whose result a fact may narrow before it is proved to fit."""


def fits(bounds: Bounds, dtype: DType) -> Bounds:
    """Return the bounds if an integer result fits its type."""
    return integers.fitting(bounds, dtype) if dtype.is_integer else bounds
