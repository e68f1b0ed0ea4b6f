"""What each elementwise operator does to intervals; what it demands is `softq.rowprog.ops`' to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from softq.rowprog.formats import format_of
from softq.rowprog.ops import Rules
from softq.rowprog.program import Node, demands_of, number_of, param_of, table_of
from softq.rowprog.ranges import floats, integers
from softq.rowprog.ranges.bounds import NEVER, Array, Bools, Bounds, along_row, constant, packed, spanned
from softq.rowprog.ranges.interval import Interval, UnprovedError, require

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


def _of_numbers(of_floats: Callable[..., Bounds], of_integers: Callable[..., Bounds]) -> Rule:
    return lambda node, args: (of_floats if node.dtype.is_float else of_integers)(*args)


def _plain(function: Callable[..., Bounds]) -> Rule:
    return lambda node, args: function(*args)


def _of_ends(function: Callable[[Array], Array]) -> Rule:
    return lambda node, args: spanned([function(end) for end in args[0].ends])


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


def _cast(node: Node, args: Sequence[Bounds]) -> Bounds:
    (x,) = args
    if node.args[0].dtype.is_float == node.dtype.is_float:
        return x
    return spanned([(_rounded if node.dtype.is_float else _truncated)(v) for v in x.ends])


def _truncated(values: Array) -> Array:
    if float(np.max(np.abs(values.astype(np.float64)))) < _TWO_63:
        return np.trunc(values).astype(np.int64)
    return np.array([int(v) for v in values.astype(np.float64).ravel()], np.object_).reshape(values.shape)


def _rounded(values: Array) -> Array:
    # From int64 or uint64 directly: by way of a double it would be rounded twice.
    return (values.astype(np.uint64) if values.dtype == np.object_ else values).astype(np.float32)


def _lut(node: Node, args: Sequence[Bounds]) -> Bounds:
    table, at = node.args[0], args[1]
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


def _assume(node: Node, args: Sequence[Bounds]) -> Bounds:
    (x,) = args
    low, high = number_of(node, "low"), number_of(node, "high")
    stated = constant(low, high, node.dtype)
    ends = np.fmax(x.low, stated.low), np.fmin(x.high, stated.high)
    # Nothing of some cell remains, or a float cell has no number at all: the assumption is false there.
    if not bool(np.all(np.logical_and(np.less_equal(*ends), np.equal(x.low, x.low)))):
        raise UnprovedError("the operand", x.interval, f"what is assumed, {Interval(low, high)}")
    return x if x.low is x.high and not np.any(x.nan) else Bounds(*ends)


def _round_to(node: Node, args: Sequence[Bounds]) -> Bounds:
    # Rounding keeps order.
    return spanned([np.asarray(format_of(node).round(end.astype(np.float32))) for end in args[0].ends], args[0].nan)


def _group_max(node: Node, args: Sequence[Bounds]) -> Bounds:
    (x,) = args
    every = along_row(x)
    # Nothing is known of an element's neighbours but that they are elements of its row.
    low = np.where(every.nan, np.fmin(x.low, np.float32(-np.inf)), x.low)
    return Bounds(low, np.broadcast_to(every.high, low.shape), np.broadcast_to(every.nan, low.shape))


RULES: Rules[Rule] = Rules(
    "range analysis",
    {
        "const": _const,
        "param": _param,
        "table": _table,
        "add": _of_numbers(floats.add, integers.add),
        "sub": _of_numbers(floats.sub, integers.sub),
        "mul": _of_numbers(floats.mul, integers.mul),
        "divide": _of_numbers(floats.divide, integers.divide),
        "min": _of_numbers(floats.minimum, integers.minimum),
        "max": _of_numbers(floats.maximum, integers.maximum),
        "shl": _plain(integers.shl),
        "shr": _plain(integers.shr),
        "lt": _lt,
        "le": _le,
        "eq": _eq,
        "and": _plain(integers.minimum),
        "or": _plain(integers.maximum),
        "not": _of_ends(lambda x: np.subtract(1, x)),
        "cast": _cast,
        "rint": _plain(floats.rint),
        "round_to": _round_to,
        "group_max": _group_max,
        "lut": _lut,
        "exp2i": _of_ends(lambda x: np.ldexp(np.float32(1), x.astype(np.int32)).astype(np.float32)),
        "normalize": lambda node, args: integers.normalize(args[0], str(node.attrs["part"])),
        "log2": _plain(floats.log2),
        "sqrt": _plain(floats.sqrt),
        "exp_minus": lambda node, args: args[1],
        "assume": _assume,
    },
)
"""What each elementwise operator gives; those that depend on the input, and `select`, are the analysis' own."""


def _row_max(node: Node, every: Bounds, present: Bounds, length: int) -> Bounds:
    low, high = np.fmax(every.low, present.low), every.high
    if node.dtype.is_float and np.any(every.nan):
        # Unspecified if an element is NaN: whether it is dropped depends on its place.
        least = np.float32(-np.inf)
        low, high = np.where(every.nan, least, low), np.fmax(high, least)
    return Bounds(low, high, every.nan)


def _row_min(node: Node, every: Bounds, present: Bounds, length: int) -> Bounds:
    low, high = every.low, np.fmin(every.high, present.high)
    if node.dtype.is_float and np.any(every.nan):
        greatest = np.float32(np.inf)
        low, high = np.fmin(low, greatest), np.where(every.nan, greatest, high)
    return Bounds(low, high, every.nan)


def _row_sum(node: Node, every: Bounds, present: Bounds, length: int) -> Bounds:
    if node.dtype.is_float:
        return floats.row_sum(every, present, length)
    return integers.row_sum(every, present, length, node.dtype)


REDUCTIONS: Rules[Callable[[Node, Bounds, Bounds, int], Bounds]] = Rules(
    "range analysis", {"row_max": _row_max, "row_min": _row_min, "row_sum": _row_sum}
)
"""What each reduction gives of 1 to so many elements: from what holds every element, and what one of them holds."""


def demand_of_operands(node: Node, args: Sequence[Bounds]) -> None:
    """Require what `softq.rowprog.ops` demands of an operator's operands."""
    for demand, ends in demands_of(node):
        if demand.operand is not None:
            require(demand.what, args[demand.operand].interval, *ends)


def demand_of_result(node: Node, bounds: Bounds) -> Bounds:
    """Require what is demanded of an operator's result; return its bounds."""
    for demand, ends in demands_of(node):
        if demand.operand is None:
            require(demand.what, bounds.interval, *ends)
    low = packed(bounds.low)
    return bounds if low is bounds.low else Bounds(low, low if bounds.low is bounds.high else packed(bounds.high))
