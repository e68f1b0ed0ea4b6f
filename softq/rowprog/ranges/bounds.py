"""Intervals by the array: the one representation that the analysis computes with.

A row program is analysed for one cell, which stands for all inputs, or for many (`softq.rowprog.ranges.cells`). Arrays
have two axes, cells of the row and cells of the element; a scalar has length 1 on the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from softq.rowprog.program import Number
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.types import DType

Array = NDArray[np.generic]
Bools = NDArray[np.bool_]

NEVER: Bools = np.zeros((1, 1), np.bool_)
_INT64 = 2**63


@dataclass(frozen=True, eq=False)
class Bounds:
    """Intervals, one per cell.

    Attributes:
        low: Least numbers: int64 (object where that is too narrow) for integers and bools, float32 for f32. A float
            cell without numbers has NaN here, which every minimum and product then passes on.
        high: Greatest numbers; the same array as `low` where each cell is one number.
        nan: Whether the value may be NaN.
    """

    low: Array
    high: Array
    nan: Bools = field(default_factory=lambda: NEVER)

    @property
    def ends(self) -> tuple[Array, ...]:
        """The arrays that hold the ends of the intervals: one if each is a point."""
        return (self.low,) if self.low is self.high else (self.low, self.high)

    @property
    def interval(self) -> Interval:
        """One interval that holds all cells."""
        nan = bool(np.any(self.nan))
        if self.low.dtype != np.float32:
            return Interval(int(np.min(self.low)), int(np.max(self.high)), nan)
        lows, highs = self.low[~np.isnan(self.low)], self.high[~np.isnan(self.high)]
        return Interval(float(lows.min()), float(highs.max()), nan) if lows.size else Interval(math.inf, -math.inf, nan)

    @property
    def possible(self) -> Bools:
        """Which cells hold anything at all; a branch of a select that is never taken holds nothing."""
        if self.low.dtype == np.float32:
            return np.logical_or(~np.isnan(self.low), self.nan)
        return np.asarray(np.less_equal(self.low, self.high))


def constant(low: Number, high: Number, dtype: DType) -> Bounds:
    """Return one cell; a float bound that is NaN stands for a value that is NaN."""
    if dtype.is_float:
        ends = [np.full((1, 1), v, np.float32) for v in (low, high)]
        return Bounds(ends[0], ends[0] if low == high else ends[1], np.isnan(ends[0]))
    ends = [packed(np.full((1, 1), int(v), np.object_)) for v in (low, high)]
    return Bounds(ends[0], ends[0] if low == high else ends[1])


def whole(dtype: DType) -> Bounds:
    """Return one cell that may be anything of the type; a float may be infinite or NaN."""
    if dtype.is_float:
        return Bounds(np.full((1, 1), -np.inf, np.float32), np.full((1, 1), np.inf, np.float32), ~NEVER)
    return constant(False, True, dtype) if dtype is DType.BOOL else constant(dtype.low, dtype.high, dtype)


def packed(values: Array) -> Array:
    """Return exact integers as int64 if they all fit."""
    fits = values.dtype == np.object_ and int(np.min(values)) >= -_INT64 and int(np.max(values)) < _INT64
    return values.astype(np.int64) if fits else values


def magnitude(*values: Array) -> int:
    """Return the greatest absolute value of some integer arrays."""
    return max(max(abs(int(np.min(v))), abs(int(np.max(v)))) for v in values)


def wide_enough(reach: int, values: Sequence[Array]) -> list[Array]:
    """Return integer arrays in a type in which a result of this magnitude is exact."""
    return [v if reach < _INT64 else v.astype(np.object_) for v in values]


def least(values: Sequence[Array]) -> Array:
    """Return the elementwise minimum; a float NaN means no number."""
    return reduce(np.fmin, values)


def greatest(values: Sequence[Array]) -> Array:
    """Return the elementwise maximum; a float NaN means no number."""
    return reduce(np.fmax, values)


def spanned(values: Sequence[Array], nan: Bools = NEVER) -> Bounds:
    """Return the bounds spanned by candidates; a point stays a point."""
    return Bounds(values[0], values[0], nan) if len(values) == 1 else Bounds(least(values), greatest(values), nan)


def either(may_a: Bools, a: Bounds, may_b: Bools, b: Bounds) -> Bounds:
    """Return what holds a where `may_a`, b where `may_b`, and both where both may be."""
    if np.all(may_a) and not np.any(may_b):
        return a
    if np.all(may_b) and not np.any(may_a):
        return b
    nan = np.logical_or(np.logical_and(may_a, a.nan), np.logical_and(may_b, b.nan))
    only_a, only_b = np.logical_and(may_a, ~may_b), np.logical_and(may_b, ~may_a)
    low = np.where(only_a, a.low, np.where(only_b, b.low, np.fmin(a.low, b.low)))
    if len(a.ends) == len(b.ends) == 1 and np.all(np.logical_xor(may_a, may_b)):
        return Bounds(low, low, nan)
    return Bounds(low, np.where(only_a, a.high, np.where(only_b, b.high, np.fmax(a.high, b.high))), nan)


def along_row(bounds: Bounds) -> Bounds:
    """Return, for each cell of the row, what holds every element."""
    nan = np.any(bounds.nan, axis=-1, keepdims=True)
    if bounds.low.shape[-1] == 1:
        return Bounds(bounds.low, bounds.high, nan)
    return Bounds(
        np.fmin.reduce(bounds.low, axis=-1, keepdims=True), np.fmax.reduce(bounds.high, axis=-1, keepdims=True), nan
    )
