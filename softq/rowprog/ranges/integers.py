"""Integer arithmetic on intervals, exact, with the demands of each operator."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from softq.rowprog.ranges.bounds import Array, Bounds, magnitude, packed, spanned, wide_enough
from softq.rowprog.ranges.unproved import require
from softq.rowprog.types import DType


def _ends(a: Bounds, b: Bounds, reach: int, function: Callable[[Array, Array], Array], dtype: DType) -> Bounds:
    """Return what the results of the ends span; all these operators are monotone in each operand."""
    values = [function(*wide_enough(reach, (x, y))) for x, y in product(a.ends, b.ends)]
    return fitting(spanned(values), dtype)


def exact(value: int | float) -> Array:
    """Return one integer, however great."""
    return packed(np.full((1, 1), int(value), np.object_))


def fitting(bounds: Bounds, dtype: DType, what: str = "the result") -> Bounds:
    """Return the bounds if they fit the type."""
    require(what, bounds.interval, dtype.low, dtype.high)
    low = packed(bounds.low)
    return Bounds(low, low if bounds.low is bounds.high else packed(bounds.high))


def add(a: Bounds, b: Bounds, dtype: DType) -> Bounds:
    """Return a + b."""
    return _ends(a, b, magnitude(*a.ends) + magnitude(*b.ends), np.add, dtype)


def sub(a: Bounds, b: Bounds) -> Bounds:
    """Return a - b, not yet proved to fit: a fact may narrow it first."""
    reach = magnitude(*a.ends) + magnitude(*b.ends)
    return spanned([np.subtract(*wide_enough(reach, (x, y))) for x, y in product(a.ends, b.ends)])


def mul(a: Bounds, b: Bounds) -> Bounds:
    """Return a * b, not yet proved to fit: a fact may narrow it first."""
    reach = magnitude(*a.ends) * magnitude(*b.ends)
    return spanned([np.multiply(*wide_enough(reach, (x, y))) for x, y in product(a.ends, b.ends)])


def divide(a: Bounds, b: Bounds, dtype: DType) -> Bounds:
    """Return the floor of a / b."""
    require("the dividend", a.interval, 0, float("inf"))
    require("the divisor", b.interval, 1, float("inf"))
    return _ends(a, b, magnitude(*a.ends, *b.ends), np.floor_divide, dtype)


def minimum(a: Bounds, b: Bounds) -> Bounds:
    """Return the lesser."""
    low = np.minimum(a.low, b.low)
    return Bounds(low, low if len(a.ends) == len(b.ends) == 1 else np.minimum(a.high, b.high))


def maximum(a: Bounds, b: Bounds) -> Bounds:
    """Return the greater."""
    low = np.maximum(a.low, b.low)
    return Bounds(low, low if len(a.ends) == len(b.ends) == 1 else np.maximum(a.high, b.high))


def shl(a: Bounds, b: Bounds, dtype: DType) -> Bounds:
    """Return a * 2^b, not yet proved to fit: a fact may narrow it first."""
    require("the shift", b.interval, 0, dtype.bits - 1)
    reach = magnitude(*a.ends) << int(np.max(b.high))
    return spanned([np.left_shift(*wide_enough(reach, (x, y))) for x, y in product(a.ends, b.ends)])


def shr(a: Bounds, b: Bounds, dtype: DType) -> Bounds:
    """Return the floor of a / 2^b."""
    require("the shift", b.interval, 0, dtype.bits - 1)
    return _ends(a, b, magnitude(*a.ends, *b.ends), np.right_shift, dtype)


def row_sum(row: Bounds, present: Bounds, length: int, dtype: DType) -> Bounds:
    """Return the sum of 1 to `length` integers of which one is `present`; every partial sum has to fit too."""
    reach = magnitude(row.low, row.high, present.low, present.high) * length
    low, high, first, last = wide_enough(reach, (row.low, row.high, present.low, present.high))
    rest = Bounds(np.minimum(low, 0) * (length - 1), np.maximum(high, 0) * (length - 1))
    partial = Bounds(np.add(np.minimum(first, 0), rest.low), np.add(np.maximum(last, 0), rest.high))
    require("the sum", partial.interval, dtype.low, dtype.high)
    return Bounds(packed(np.add(first, rest.low)), packed(np.add(last, rest.high)))


def normalize(a: Bounds, part: str) -> Bounds:
    """Return the mantissa or the shift of x > 0."""
    require("the operand", a.interval, 1, DType.U32.high)
    shifts = [np.subtract(32, np.frexp(x.astype(np.float64))[1]).astype(np.int64) for x in (a.low, a.high)]
    if part == "shift":
        return Bounds(shifts[1], shifts[0])
    same = np.equal(shifts[0], shifts[1])
    low, high = (np.left_shift(x, s) for x, s in zip((a.low, a.high), shifts, strict=True))
    return Bounds(np.where(same, low, 1 << 31), np.where(same, high, (1 << 32) - 1))
