"""Bias correction of uniform codes, for any method that gives such: p~ = (code - zero_point) / steps.

The codes of a row have the exact sum of 1 only on average of what they round; the mean error of an element, in units of
a code, is a zero point, subtracted from every element that takes part. Because the exact probabilities of a row sum to
1, it follows from the sum of the codes: (sum of codes - steps) / elements, with `steps` codes in the probability 1.
"""

from __future__ import annotations

from softq.methods._softmax import Softmax
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import EXP_LIMIT


def corrected(t: Trace, p: Softmax, codes: Value, zero_point: Value) -> Value:
    """Return codes - zero_point, row of f32; 0 for masked elements, which are not corrected.

    Args:
        t: The trace.
        p: The softmax that the codes are of.
        codes: Row of f32, whole numbers.
        zero_point: Scalar of f32.
    """
    return t.select(takes_part(t, p), codes - zero_point, 0.0)


def row_zero_point(t: Trace, p: Softmax, codes: Value, steps: Value) -> Value:
    """Return each row's own zero point, scalar of f32, from the sum of its codes (row of u32)."""
    one, nothing = t.const(1, DType.I32), t.const(0, DType.I32)
    count = t.max(t.row_sum(t.select(takes_part(t, p), one, nothing)), 1)  # 1: a fully masked row is divided too
    return t.divide(t.cast(t.row_sum(codes), DType.F32) - steps, t.cast(count, DType.F32))


def takes_part(t: Trace, p: Softmax) -> Value:
    """Return which elements take part: those whose exponential is not 0.

    That leaves out masked elements, also under a mask of a great finite number, which nothing else tells from a score.
    """
    return p.from_zero(t) <= EXP_LIMIT
