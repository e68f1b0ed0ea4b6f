"""f32 arithmetic on intervals.

Every operator here is rounded to nearest even, which keeps order, so the ends of a result are results of ends, computed
in float32. A candidate that is NaN (inf - inf, 0 * inf) is no number and drops out; whether NaN is possible is found
from the operands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product

import numpy as np

from softq.rowprog.ranges.bounds import Array, Bools, Bounds, greatest, least, spanned


def _any(*conditions: Bools) -> Bools:
    return reduce(np.logical_or, conditions)


def _has(a: Bounds, value: float) -> Bools:
    return np.logical_and(np.less_equal(a.low, value), np.less_equal(value, a.high))


def _infinite(a: Bounds) -> Bools:
    return np.logical_or(np.isinf(a.low), np.isinf(a.high))


def _finite(a: Bounds) -> Bools:
    # [-inf, inf] and [3, inf] hold finite numbers, [inf, inf] does not.
    return np.logical_or(np.less(a.low, a.high), np.isfinite(a.low))


def add(a: Bounds, b: Bounds) -> Bounds:
    """Return a + b."""
    opposite = [np.logical_and(_has(a, s), _has(b, -s)) for s in (np.inf, -np.inf)]
    return spanned([np.add(x, y) for x, y in product(a.ends, b.ends)], _any(a.nan, b.nan, *opposite))


def sub(a: Bounds, b: Bounds) -> Bounds:
    """Return a - b."""
    return add(a, negative(b))


def negative(a: Bounds) -> Bounds:
    """Return -a."""
    low = np.negative(a.high)
    return Bounds(low, low if a.low is a.high else np.negative(a.low), a.nan)


def mul(a: Bounds, b: Bounds) -> Bounds:
    """Return a * b."""
    undefined = [np.logical_and(_has(p, 0.0), _infinite(q)) for p, q in ((a, b), (b, a))]
    return spanned(_products(a, b), _any(a.nan, b.nan, *undefined))


def _products(a: Bounds, b: Bounds) -> list[Array]:
    values: list[Array] = [np.multiply(x, y) for x, y in product(a.ends, b.ends)]
    if np.any(_infinite(a)) or np.any(_infinite(b)):
        # [0, 0] * [-inf, inf] is 0 or NaN, and no product of ends says so.
        zero = [np.logical_and(_has(p, 0.0), _finite(q)) for p, q in ((a, b), (b, a))]
        values.append(np.where(_any(*zero), values[0].dtype.type(0), values[0].dtype.type(np.nan)))
    return values


def divide(a: Bounds, b: Bounds) -> Bounds:
    """Return a / b."""
    crosses = _has(b, 0.0)
    undefined = [np.logical_and(crosses, _has(a, 0.0)), np.logical_and(_infinite(a), _infinite(b))]
    ends = spanned([np.divide(x, y) for x, y in product(a.ends, b.ends)], _any(a.nan, b.nan, *undefined))
    if not np.any(crosses):
        return ends
    # A zero may be of either sign, whatever the other end of the interval.
    none = np.isnan(a.low)
    unbounded = [np.where(none, np.float32(np.nan), np.float32(s)) for s in (-np.inf, np.inf)]
    return Bounds(np.where(crosses, unbounded[0], ends.low), np.where(crosses, unbounded[1], ends.high), ends.nan)


def fused(a: Bounds, b: Bounds, c: Bounds) -> Bounds:
    """Return a * b + c with one rounding, one unit in the last place outwards."""
    wide = [Bounds(v.low.astype(np.float64), v.high.astype(np.float64)) for v in (a, b)]
    # The product of two f32 is exact in double; the sum there is rounded once more than in a fused operation.
    sums = [np.add(p, q) for p in _products(*wide) for q in c.ends]
    return outwards(least(sums), greatest(sums))


def outwards(low: Array, high: Array) -> Bounds:
    """Return float64 ends rounded to f32 and moved one unit outwards."""
    ends = [np.nextafter(v.astype(np.float32), np.float32(s)) for v, s in ((low, -np.inf), (high, np.inf))]
    return Bounds(ends[0], ends[1])


def minimum(a: Bounds, b: Bounds) -> Bounds:
    """Return select(a < b, a, b): b wherever one of the two is NaN."""
    return _extreme(a, b, np.fmin)


def maximum(a: Bounds, b: Bounds) -> Bounds:
    """Return select(b < a, a, b): b wherever one of the two is NaN."""
    return _extreme(a, b, np.fmax)


def _extreme(a: Bounds, b: Bounds, choose: Callable[[Array, Array], Array]) -> Bounds:
    def end(x: Array, y: Array, *, inner: bool) -> Array:
        chosen = choose(x, y)
        if inner:
            # With a NaN the result is b, which a then does not bound.
            chosen = np.where(a.nan, y, chosen)
        return np.where(np.isnan(y), y, chosen)

    least_of_two = choose is np.fmin
    low = end(a.low, b.low, inner=not least_of_two)
    points = len(a.ends) == len(b.ends) == 1 and not np.any(a.nan)
    return Bounds(low, low if points else end(a.high, b.high, inner=least_of_two), b.nan)


def log2(a: Bounds) -> Bounds:
    """Return log2 a, three units in the last place outwards; the logarithm of 1 is 0, and no error crosses it."""
    ends: list[Array] = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for x, sign in ((a.low, -1.0), (a.high, 1.0)):
            exact = np.log2(np.where(np.less(x, 0), 0.0 if sign < 0 else np.nan, x.astype(np.float64)))
            unit = np.where(np.isinf(exact), 0.0, np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64))
            moved = exact + sign * 4 * unit  # 3 units of the operator, 1 for rounding the end itself
            ends.append(np.where(np.less_equal(np.multiply(moved, exact), 0), exact, moved).astype(np.float32))
    return _without(np.isnan(ends[1]), Bounds(ends[0], ends[1], np.logical_or(a.nan, np.less(a.low, 0))))


def sqrt(a: Bounds) -> Bounds:
    """Return the square root."""
    with np.errstate(invalid="ignore"):
        ends = [np.sqrt(np.where(np.less(a.low, 0), np.float32(0), a.low)), np.sqrt(a.high)]
    return _without(np.isnan(ends[1]), Bounds(ends[0], ends[1], np.logical_or(a.nan, np.less(a.low, 0))))


def _without(none: Bools, bounds: Bounds) -> Bounds:
    nan = np.float32(np.nan)
    return Bounds(np.where(none, nan, bounds.low), np.where(none, nan, bounds.high), bounds.nan)


def rint(a: Bounds) -> Bounds:
    """Return the nearest integers."""
    return spanned([np.rint(x) for x in a.ends], a.nan)


def row_sum(row: Bounds, present: Bounds, length: int) -> Bounds:
    """Return the sum of 1 to `length` numbers of which one is `present`, in any order.

    Rounding keeps order, so a sum is at most the sum of its positive elements in the same order, and that one is off by
    at most (n - 1) * 2^-24 of itself (Jeannerod and Rump, SIAM J. Matrix Anal. Appl. 34, 2013; any n, any order).
    """
    factor = length * (1 + length * 2.0**-24) if length > 1 else 1.0
    wide = [np.multiply(v.astype(np.float64), factor) for v in (row.low, row.high)]
    far = outwards(*wide)
    low = np.where(np.less(row.low, 0), far.low, present.low)
    high = np.where(np.less(0, row.high), far.high, present.high)
    both = np.logical_and(np.isneginf(low), np.isposinf(high))
    return Bounds(low, high, np.logical_or(row.nan, both))
