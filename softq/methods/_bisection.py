"""What functions share that cut a row off at a threshold, found by bisection: nothing is sorted."""

from __future__ import annotations

from collections.abc import Callable

from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import F32_MAX, whole_power


def bisect(t: Trace, enough: Callable[[Value], Value], highest: float, steps: int) -> Value:
    """Return the upper end of the interval, of width highest / 2^steps, in which a rising condition becomes true.

    Args:
        t: The trace.
        enough: Whether a threshold, scalar of f32, is high enough, scalar of bool; taken for true at `highest`.
        highest: Where the threshold cannot lie above, a power of two; it cannot lie below 0.
        steps: How often the interval is halved, at most 24: all its ends are then f32 numbers, and no sum is rounded.
    """
    assert steps <= 24
    low, width = t.const(0.0, DType.F32), highest
    for _ in range(steps):
        width /= 2
        middle = low + width
        low = t.select(enough(middle), low, middle)
    return low + width


def greatest_with(t: Trace, enough: Callable[[Value], Value], x: Value, reach: float) -> Value:
    """Return the greatest threshold at which a condition that is true far below is still true, scalar of f32.

    It is an f32 number to the bit where it is at least reach / 2^25 in size: where the ends of the interval are
    neighbours, its middle is rounded to one of them and nothing changes any more.

    Args:
        t: The trace.
        enough: Whether a threshold, scalar of f32, is low enough, scalar of bool; false above all elements of `x`.
        x: Row of f32.
        reach: How far below the greatest element is looked; `enough` is taken for true there.
    """
    greatest = t.clamp(t.row_max(x), -F32_MAX, F32_MAX)
    low, high, half = greatest - reach, greatest, t.const(0.5, DType.F32)
    for _ in range(EXACT_STEPS):
        middle = low * half + high * half
        found = enough(middle)
        low, high = t.select(found, middle, low), t.select(found, high, middle)
    return t.select(enough(greatest), greatest, low)


EXACT_STEPS = 48
"""Bisections that leave reach / 2^48, the distance of f32 numbers of the size reach / 2^25."""


def simplex(t: Trace, d: Value, power: int) -> tuple[Value, Value]:
    """Return w = max(s - d, 0)^power of a row d of distances, at least 0, with s such that sum(w) = 1, and that sum.

    s is in [0, 1], where the sum rises with s and is convex. `STEPS` bisections leave it 2^-STEPS too high at most; one
    step of Newton from above, which stays above, leaves a square of that, and rounding.
    """

    def excess(s: Value) -> Value:
        return t.max(s - d, 0.0)

    def total(s: Value) -> Value:
        return t.row_sum(whole_power(t, excess(s), power))

    high = bisect(t, lambda s: total(s) >= 1.0, 1.0, STEPS)
    # The sum's derivative; at least 1 where there is an element, as the greatest has the excess s > 0.
    near = excess(high)
    slope = t.row_sum(t.select(near > 0.0, t.const(1.0, DType.F32), 0.0)) if power == 1 else t.row_sum(near) * 2.0
    best = high - t.divide(total(high) - 1.0, t.max(slope, 1.0))
    weights = whole_power(t, excess(best), power)
    return weights, t.row_sum(weights)


STEPS = 20
"""Bisections of the threshold: 2^-20 is the rounding of a sum of 16 numbers around 1."""
