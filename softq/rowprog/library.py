"""Pieces that several methods share, written in the language itself.

The special values of scores are handled here, once: see `distance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from softq.errors import UsageError
from softq.rowprog.rounding import round_to
from softq.rowprog.trace import Trace
from softq.rowprog.types import DType
from softq.rowprog.value import Value

F32_MAX = float.fromhex("0x1.fffffep+127")
LOG2_E = math.log2(math.e)
"""log2(e) in double precision; f32 constants derived from it are rounded once, when traced."""


Step = Literal["difference", "exponential", "sum", "product"]
"""The steps of a float softmax that a trace may have types for."""


def in_type(t: Trace, step: Step, value: Value, *, signed: bool = False) -> Value:
    """Return what a step gives, f32 and not negative unless `signed`, in the type that the trace has for it.

    A difference that is infinite stays so.
    """
    t.steps.add(step)
    if step not in t.types:
        return value
    held = round_to(t, value, t.types[step], signed=signed)
    if step != "difference":
        return held
    finite = value < math.inf
    return t.select(finite & (value > -math.inf) if signed else finite, held, value)


@dataclass(frozen=True)
class Distance:
    """How far each float score lies below the greatest one of its row.

    Attributes:
        row: max - score, row of f32, in [0, +inf] or NaN. It is +inf for a masked element (valid = false or a score of
            -inf), in a fully masked row too, and NaN for a score of +inf (which `clamp` and `max(_, 0)` make 0: those
            elements share all the weight) and throughout a row that holds a NaN.
        is_nan: Whether an element that takes part is NaN, scalar bool; found by its own comparison, because a maximum
            keeps or drops a NaN as it pleases.
        trace: The trace.
    """

    row: Value
    is_nan: Value
    trace: Trace

    def pair(self, weights: Value, total: Value | None = None) -> dict[str, Value]:
        """Return a program's outputs: the weights and their sum (or `total`), NaN in a row that holds a NaN."""
        t = self.trace
        total = in_type(t, "sum", t.row_sum(weights)) if total is None else total
        held = in_type(t, "product", weights) if weights.dtype.is_float else weights
        return {"weights": held, "normalizer": t.select(self.is_nan, math.nan, total)}


def mask_scores(t: Trace) -> tuple[Value, Value]:
    """Return the f32 scores of the trace, -inf where masked, and whether one of them is NaN, scalar of bool."""
    x = t.scores if t.valid is None else t.select(t.valid, t.scores, -math.inf)
    return x, t.any(~x.eq(x))


def distance(t: Trace) -> Distance:
    """Return the distance of each f32 score of the trace from the row's maximum, masked elements left out."""
    d = exact_distance(t)
    return Distance(in_type(t, "difference", d.row), d.is_nan, t)


def exact_distance(t: Trace) -> Distance:
    """Return `distance` in f32, whatever type differences have."""
    x, is_nan = mask_scores(t)
    # A fully masked row has the maximum -inf, and -inf - -inf would be NaN: measured from the least finite number,
    # every element of it is infinitely far away.
    greatest = t.max(t.row_max(x), -F32_MAX)
    return Distance(greatest - x, is_nan, t)


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
    return in_type(t, "exponential", exact_exp_minus(t, d))


def exact_exp_minus(t: Trace, d: Value) -> Value:
    """Return `exp_minus` in f32, whatever type exponentials have."""
    from_zero = t.max(d, 0.0)
    n, r = halvings(t, t.min(from_zero, EXP_LIMIT))
    value = horner(t, r, (1.0, 1.0, *EXP_Q))
    power = t.exp2i(t.cast(0.0 - n, DType.I32))
    return t.exp_minus(from_zero, t.select(from_zero <= EXP_LIMIT, value * power, 0.0))


def horner(t: Trace, x: Value, coefficients: Sequence[float]) -> Value:
    """Return the polynomial of f32 x with these coefficients, that of x^0 first."""
    value = t.const(coefficients[-1], DType.F32)
    for c in reversed(coefficients[:-1]):
        value = value * x + t.const(c, DType.F32)
    return value


def halvings(t: Trace, d: Value) -> tuple[Value, Value]:
    """Return (n, r), f32: e^-d = 2^-n e^r, n whole and |r| <= ln(2) / 2 but for rounding, for d in [0, EXP_LIMIT]."""
    n = t.rint(d * t.const(LOG2_E, DType.F32))
    return n, (n * t.const(LN2_HIGH, DType.F32) - d) + n * t.const(LN2_LOW, DType.F32)


def expm1_near(t: Trace, x: Value) -> Value:
    """Return e^x - 1 for |x| <= ln(2) / 2 by `exp_minus`'s polynomial, relatively exact to 4e-7 where 1 swallows x."""
    return x + x * x * horner(t, x, EXP_Q)


def whole_power(t: Trace, x: Value, power: int) -> Value:
    """Return x^power for a power of at least 1, by squaring."""
    assert power >= 1
    result: Value | None = None
    while True:
        if power & 1:
            result = x if result is None else result * x
        power >>= 1
        if not power:
            assert result is not None
            return result
        x = x * x


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


EXACT_INTEGERS = 2**24
"""All integers up to this one are f32 numbers."""

FARTHEST = 104.0
"""e^-104 is below 2^-150: from this distance on the exact softmax in f32 gives weight 0, subnormals included."""


@dataclass(frozen=True)
class IntegerDistance:
    """How far each score lies below the greatest one of its row, in whole units: the entry of integer-only methods.

    Attributes:
        row: The distance, rounded and clamped, row of i32 in [0, largest]. It is `largest` where an element is excluded
            and 0 for a score of +inf.
        excluded: Where an element takes no part, row of bool: masked, -inf, finite beside a score of +inf, or a float
            score `FARTHEST` or more below the maximum: a mask of -10000 hides what it means to hide, whatever the
            method makes of the greatest distance. None if there can be no such element.
        is_nan: Whether an element that takes part is NaN, scalar of bool; None for integer scores.
    """

    row: Value
    excluded: Value | None
    is_nan: Value | None

    def weigh(self, weights: Value) -> Value:
        """Return the weights with 0 where an element is excluded: needed unless the weight of `largest` is 0."""
        return weights if self.excluded is None else weights.trace.select(self.excluded, 0, weights)

    def normalizer(self, total: Value) -> Value:
        """Return the sum of the weights as the program's normalizer: f32 and NaN where a float score is NaN."""
        if self.is_nan is None:
            return total
        t = total.trace
        return t.select(self.is_nan, math.nan, t.cast(total, DType.F32))

    def one(self, total: Value, one: float) -> Value:
        """Return the normalizer of probabilities in a fixed format: the code of 1, or 0 where all weights are 0."""
        return self.normalizer(total.trace.select(total > 0, total.trace.const(one, total.dtype), 0))


def integer_distance(
    t: Trace, unit: float, largest: int, step: float = 0.0, *, rate: Value | None = None
) -> IntegerDistance:
    """Return the distance of each score of the trace from the row's maximum in units of `unit`, at most `largest`.

    Float scores take one subtraction, one product and one rounding, half to even. 8-bit integer scores are multiplied
    by `step / unit`, rounded half up (`rounded_multiple`), and stay as they are where the two are equal; then they may
    have 16 bits.

    Args:
        t: The trace.
        unit: Real value of one unit of the result.
        largest: Where the result ends.
        step: Real value of one unit of integer scores; float scores do not use it.
        rate: For float scores, 1 / unit where it is known only at run time: a scalar of f32, greater than 0.

    Raises:
        UsageError: the scores are integers of more than 8 bits or without a step, or `largest` or the unit are out of
            range.
    """
    if not 1 <= largest <= EXACT_INTEGERS or not 2.0**-100 <= unit <= 2.0**100:
        raise UsageError(
            f"distances up to {largest} in units of {unit:g}; allowed are 1 to {EXACT_INTEGERS}, and 2^-100 to 2^100"
        )
    if t.scores.dtype.is_float:
        d = distance(t)
        # A rate of 0 puts every element of a row that holds a NaN at the distance 0, whatever its maximum came out as.
        level = t.rint(d.row * t.select(d.is_nan, 0.0, t.const(1 / unit, DType.F32) if rate is None else rate))
        row = t.cast(t.clamp(level, 0.0, float(largest)), DType.I32)
        return IntegerDistance(row, d.row >= FARTHEST, d.is_nan)
    if t.scores.dtype.bits > (16 if step == unit else 8) or not step > 0:
        raise UsageError(
            f"{t.scores.dtype.value} scores with step={step:g}: integer scores are of 8 bits, with a step above 0"
        )
    x = t.scores if t.valid is None else t.select(t.valid, t.scores, t.scores.dtype.low)
    d = t.cast(t.row_max(x), DType.I32) - t.cast(x, DType.I32)
    row = t.min(d if step == unit else rounded_multiple(t, d, step / unit, 255), largest)
    if t.valid is None:
        return IntegerDistance(row, None, None)
    return IntegerDistance(t.select(t.valid, row, largest), ~t.valid, None)
