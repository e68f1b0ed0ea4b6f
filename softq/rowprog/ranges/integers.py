"""Integer arithmetic on intervals, exact; what has to be proved of operands was proved, and of results is not yet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from softq.rowprog.ranges.bounds import Array, Bounds, magnitude, packed, spanned, wide_enough
from softq.rowprog.ranges.interval import require
from softq.rowprog.types import DType


def _of_ends(function: Callable[[Array, Array], Array], reach: int, a: Bounds, b: Bounds) -> Bounds:
    """Return what the results of the ends span, all of at most this magnitude: monotone in each operand."""
    return spanned([function(*wide_enough(reach, (x, y))) for x, y in product(a.ends, b.ends)])


def exact(value: int | float) -> Array:
    """Return one integer, however great."""
    return packed(np.full((1, 1), int(value), np.object_))


def add(a: Bounds, b: Bounds) -> Bounds:
    """Return a + b."""
    return _of_ends(np.add, magnitude(*a.ends) + magnitude(*b.ends), a, b)


def sub(a: Bounds, b: Bounds) -> Bounds:
    """Return a - b."""
    return _of_ends(np.subtract, magnitude(*a.ends) + magnitude(*b.ends), a, b)


def mul(a: Bounds, b: Bounds) -> Bounds:
    """Return a * b."""
    return _of_ends(np.multiply, magnitude(*a.ends) * magnitude(*b.ends), a, b)


def divide(a: Bounds, b: Bounds) -> Bounds:
    """Return the floor of a / b."""
    return _of_ends(np.floor_divide, magnitude(*a.ends, *b.ends), a, b)


def minimum(a: Bounds, b: Bounds) -> Bounds:
    """Return the lesser."""
    low = np.minimum(a.low, b.low)
    return Bounds(low, low if len(a.ends) == len(b.ends) == 1 else np.minimum(a.high, b.high))


def maximum(a: Bounds, b: Bounds) -> Bounds:
    """Return the greater."""
    low = np.maximum(a.low, b.low)
    return Bounds(low, low if len(a.ends) == len(b.ends) == 1 else np.maximum(a.high, b.high))


def shl(a: Bounds, b: Bounds) -> Bounds:
    """Return a * 2^b."""
    return _of_ends(np.left_shift, magnitude(*a.ends) << int(np.max(b.high)), a, b)


def shr(a: Bounds, b: Bounds) -> Bounds:
    """Return the floor of a / 2^b."""
    return _of_ends(np.right_shift, magnitude(*a.ends, *b.ends), a, b)


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
    shifts = [np.subtract(32, np.frexp(x.astype(np.float64))[1]).astype(np.int64) for x in (a.low, a.high)]
    if part == "shift":
        return Bounds(shifts[1], shifts[0])
    same = np.equal(shifts[0], shifts[1])
    low, high = (np.left_shift(x, s) for x, s in zip((a.low, a.high), shifts, strict=True))
    return Bounds(np.where(same, low, 1 << 31), np.where(same, high, (1 << 32) - 1))
