"""Pieces that several methods share, written in the language itself.

The special values of scores are handled here, once: see `distance`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from softq.errors import UsageError
from softq.rowprog.trace import Trace, Value
from softq.rowprog.types import DType

F32_MAX = float.fromhex("0x1.fffffep+127")
LOG2_E = math.log2(math.e)
"""log2(e) in double precision; f32 constants derived from it are rounded once, when traced."""


@dataclass(frozen=True)
class Distance:
    """How far each float score lies below the greatest one of its row.

    Attributes:
        row: max - score, row of f32, in [0, +inf] or NaN. It is +inf for a masked element (valid = false or a score of
            -inf), in a fully masked row too, and NaN for a score of +inf (which `clamp` and `max(_, 0)` make 0: those
            elements share all the weight) and throughout a row that holds a NaN.
        is_nan: Whether an element that takes part is NaN, scalar bool; found by its own comparison, because a maximum
            keeps or drops a NaN as it pleases.
    """

    row: Value
    is_nan: Value


def distance(t: Trace) -> Distance:
    """Return the distance of each f32 score of the trace from the row's maximum, masked elements left out."""
    x = t.scores if t.valid is None else t.select(t.valid, t.scores, -math.inf)
    is_nan = t.any(~x.eq(x))
    # A fully masked row has the maximum -inf, and -inf - -inf would be NaN: measured from the least finite number,
    # every element of it is infinitely far away.
    greatest = t.max(t.row_max(x), -F32_MAX)
    return Distance(greatest - x, is_nan)


# e^r = 1 + r + r^2 * q(r): q levels the relative error at the extrema of the Chebyshev polynomial of degree 5 on
# |r| <= ln(2)/2 * (1 + 2^-12) (one step of Remez' algorithm, in 40 digits). The relative error of the polynomial is
# 3.1e-9 before rounding; tests/test_library.py measures what remains in f32.
EXP_Q = tuple(float.fromhex(c) for c in (
    "0x1.fffffcp-2", "0x1.555492p-3", "0x1.5558f2p-5", "0x1.1239f8p-7", "0x1.6a241p-10",
))  # fmt: skip

# ln 2 in two parts (Cody and Waite): the first has 16 significant bits, so that its product with n < 2^8 is exact.
LN2_HIGH = float(Fraction(round(Fraction(math.log(2)) * 2**16), 2**16))
LN2_LOW = math.log(2) - LN2_HIGH

EXP_LIMIT = 86.5
"""`exp_minus` is 0 beyond this distance, where e^-d < 2.8e-38; the least exponent used is then -125: no subnormals."""


def exp_minus(t: Trace, d: Value) -> Value:
    """Return e^-d, row or scalar of f32, for d in [0, +inf]; a NaN counts as 0. Beyond `EXP_LIMIT` it is 0.

    Relative error at most 1e-7 over all of [0, EXP_LIMIT]; most of it is rounding.
    """
    from_zero = t.max(d, 0.0)
    near = t.min(from_zero, EXP_LIMIT)
    n = t.rint(near * t.const(LOG2_E, DType.F32))
    r = (n * t.const(LN2_HIGH, DType.F32) - near) + n * t.const(LN2_LOW, DType.F32)
    value = t.const(EXP_Q[-1], DType.F32)
    for c in (*reversed(EXP_Q[:-1]), 1.0, 1.0):
        value = value * r + t.const(c, DType.F32)
    power = t.exp2i(t.cast(0.0 - n, DType.I32))
    return t.select(from_zero <= EXP_LIMIT, value * power, 0.0)


def rounded_multiple(t: Trace, a: Value, factor: float, largest: int) -> Value:
    """Return round(a * factor), half up, of i32 a in [0, largest], as i32 by one multiplication and one shift.

    The factor is held as M / 2^s with the greatest s <= 30 for which a * M + 2^(s-1) stays within 31 bits.

    Raises:
        UsageError: the factor is so great, or `largest` so great, that no s >= 1 is left.
    """
    shift = min(30, 29 - largest.bit_length() - max(math.frexp(factor)[1], 0))
    if shift < 1:
        limit = 2 ** (28 - largest.bit_length())
        raise UsageError(f"factor {factor:g} for integers up to {largest}; allowed is below {limit}")
    multiplier = round(Fraction(factor) * 2**shift)
    return (a * t.const(multiplier, DType.I32) + (1 << (shift - 1))) >> shift
