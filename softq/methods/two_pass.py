"""The two-pass softmax: each exponential as mantissa and exponent, so that no maximum is needed before the sum.

    n = rint(x log2 e), t = x - n ln 2, v = c(t) ~ e^t:  e^x = v * 2^n, v in [0.70, 1.42]
    (V, E) + (v, n) = (V * 2^(E - E') + v * 2^(n - E'), E') with E' = max(E, n)
    w = v * 2^(n - E), p = w / V with the last V and E

2^n itself is never formed, so that nothing overflows; powers of two scale exactly, so that only the sum is rounded.

Source: Dukhan and Ablavatski, arXiv 2001.04438, algorithm 3, and its code, github.com/google/XNNPACK (75db3c0,
src/f32-raddextexp): the five coefficients of c (c(0) = 1) are those of its kernels. What differs:

* There x = -inf gives NaN and so does +inf; here -inf is masked (its mantissa is 0) and +inf takes all the weight.
* There a fused multiply-add takes n ln 2 from x in two steps; here it is three exact or nearly exact products.
* There factors from 2^-127 on are 0; here from 2^-126 on, so that no product is subnormal.

maximum=running is the published form: one pass over the scores for the sum, one for the weights. maximum=first takes
the greatest exponent first, which costs a pass and gives the same weights; take it where the scores are kept: for the
other one onnxruntime loops over the elements.
Input: scores from -16384 to 16384, which the three products reduce exactly; beyond, as these. -inf and +inf as above.
Integers: n, E and their difference, whole numbers held in f32. Accumulator: f32, V in [0.70, 2^25], where an f32 sum of
such numbers stops to grow.
Types: there is no difference from a maximum; its type is that of t, what is left of x, and that of exponentials is the
type of v, since n is a whole number in any case. V is rounded once, w at last.
Error: w / e^(x - E ln 2) within 2e-7, relatively, of which the polynomial itself has 9.3e-8; V within
N * 2^-23 more. p < 2^-126 is 0.
Calibration: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions, StepType
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, horner, in_type, mask_scores

# c1 to c5 of XNNPACK's degree-5 kernels, for |t| <= ln(2) / 2.
COEFFICIENTS = tuple(float.fromhex(c) for c in (
    "0x1.FFFFF6p-1", "0x1.FFFDC6p-2", "0x1.555A80p-3", "0x1.573A1Ap-5", "0x1.0F9F9Cp-7",
))  # fmt: skip

FARTHEST = 16384.0
"""Its exponent n has 15 bits: times the 9 bits of a part of ln 2 that is an f32 number."""

_LN2 = Fraction(math.log(2))
LN2_HIGH = Fraction(round(_LN2 * 2**9), 2**9)
LN2_MIDDLE = Fraction(round((_LN2 - LN2_HIGH) * 2**21), 2**21)
LN2_LOW = _LN2 - LN2_HIGH - LN2_MIDDLE
"""ln 2 in three parts, of 9, 9 and 24 bits."""

_GREATEST_T = 0.375
"""ln(2) / 2, and what rounding of x log2 e can add at the farthest x."""

_OUTSIDE = 32768.0
"""An exponent beyond all of finite scores, by more than the 126 that make a factor 0."""

_LEAST_FACTOR = -125
_GREATEST_SUM = float(2**25)


@dataclass(frozen=True)
class TwoPassOptions(FloatOptions):
    """When the greatest exponent is known."""

    difference_type: StepType = option("f32", "the type of what is left of a score without whole halvings")
    exponential_type: StepType = option("f32", "the type of mantissas")
    maximum: Literal["running", "first"] = option(
        "running", "of the exponents: running, in the pass of the sum, or first, in a pass of its own"
    )


def _power(t: Trace, exponent: Value) -> Value:
    """Return 2^exponent of whole numbers up to 0, and 0 below `_LEAST_FACTOR`."""
    near = t.clamp(exponent, float(_LEAST_FACTOR), 0.0)
    return t.select(exponent < float(_LEAST_FACTOR), 0.0, t.exp2i(t.cast(near, DType.I32)))


def _extended_exp(t: Trace, x: Value) -> tuple[Value, Value]:
    """Return (mantissa, exponent) of e^x, a mantissa of 0 for -inf."""
    near = t.clamp(x, -FARTHEST, FARTHEST)
    n = t.rint(near * t.const(LOG2_E, DType.F32))
    rest = near
    for part in (LN2_HIGH, LN2_MIDDLE, LN2_LOW):
        rest = rest - n * t.const(float(part), DType.F32)
    rest = t.assume(rest, -_GREATEST_T, _GREATEST_T, "n is the whole number nearest to x log2 e")
    rest = in_type(t, "difference", rest, signed=True)
    value = in_type(t, "exponential", horner(t, rest, (1.0, *COEFFICIENTS)))
    masked = x.eq(-math.inf)
    exponent = t.select(masked, -_OUTSIDE, t.select(x.eq(math.inf), _OUTSIDE, n))
    return t.select(masked, 0.0, value), exponent


def _trace(t: Trace, options: TwoPassOptions) -> Outputs:
    x, is_nan = mask_scores(t)
    mantissa, exponent = _extended_exp(t, x)
    if options.maximum == "first":
        greatest = t.max(t.row_max(exponent), -_OUTSIDE)
        weights = mantissa * _power(t, exponent - greatest)
        total = t.row_sum(weights)
    else:

        def step(total: Value, greatest: Value, v: Value, n: Value) -> tuple[list[Value], list[Value]]:
            after = t.max(greatest, n)
            total = total * _power(t, greatest - after) + v * _power(t, n - after)
            return [t.min(total, _GREATEST_SUM), after], []

        start = [t.const(0.0, DType.F32), t.const(-_OUTSIDE, DType.F32)]
        kept = [(0.0, _GREATEST_SUM), (-_OUTSIDE, _OUTSIDE)]
        (total, greatest), _ = t.scan(start, [mantissa, exponent], step, kept)
        weights = mantissa * _power(t, exponent - greatest)
    total = t.select(is_nan, math.nan, in_type(t, "sum", total))
    return {"weights": in_type(t, "product", weights), "normalizer": total}


METHOD = Method(
    name="two-pass",
    summary="Exponentials as mantissa and exponent, so that no maximum is needed before the sum.",
    source="Dukhan and Ablavatski, arXiv 2001.04438; XNNPACK",
    options=TwoPassOptions,
    trace=_trace,
    drop_in=True,
)
