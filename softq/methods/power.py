"""An even power of the score in the exponential's place: w = x^p, S = sum(w).

Source: Power-Softmax, Zimerman et al., arXiv 2410.09457, equation of PowerSoftmax with p even; made for homomorphic
encryption and secure computation, which have products and no exponential. It is no softmax: a shift of the scores
changes the result, x and -x weigh the same, and a great negative score weighs much.
Only ratios count, so the scores are first divided by M, the greatest |x| of the row, as the paper does for range: that
is exact in real numbers. Where every |x| is 0 the paper's formula is 0 / 0; here all elements weigh the same. Others
add a small number to the denominator, which is not done here.
Input: any finite f32. +inf takes all the weight, -inf is masked; a finite score of -5000 or less that is 104 or more
below the row's greatest counts as masked.
8-bit integer scores: x = step * (score - zero), a table of 256 weights of W bits, and their sum in u32; what is below
2^-W of the greatest weight of all 256 scores is 0, so that a high power knows the greatest scores only.
Integers: for float scores none. Accumulator: f32, S in [1, N].
Error: each weight within (p + 3) * 2^-23 of (x / M)^p, relatively, where that is above 2^-126; less is lost.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from softq.errors import UsageError
from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, scores, step_option, units, weight_bits_option, zero_option
from softq.methods._written import Function, WrittenSettings
from softq.rowprog import DType, Trace
from softq.rowprog.library import in_type, whole_power


@dataclass(frozen=True)
class PowerOptions(FloatOptions):
    """The exponent."""

    unnamed = FLOATS

    power: int = option(4, "exponent, even", low=2, high=16)
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _trace(t: Trace, options: PowerOptions) -> Outputs:
    power = options.power
    if power % 2:
        raise UsageError(f"power: power is {power}; allowed is an even number from 2 to 16: odd powers keep the sign")
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x = scores(t)
    size = x.only(t.select(x.row < 0.0, 0.0 - x.row, x.row))
    greatest = t.row_max(size)
    u = t.select(greatest > 0.0, t.divide(x.row, greatest), t.const(1.0, DType.F32))
    weights = whole_power(t, u, power)
    return x.pair(weights, in_type(t, "sum", t.row_sum(x.only(weights))))


def _trace_integer(t: Trace, options: PowerOptions) -> Outputs:
    x = units(t, options.step, options.zero, options.weight_bits)
    some, _ = x.share(lambda score: score**options.power)
    weights = x.only(t.select(t.row_sum(some) > 0, some, 1))
    return {"weights": weights, "normalizer": t.row_sum(weights)}


def _written(f: Function) -> Iterable[WrittenSettings]:
    two, one, *_ = f.of(2.0, 1.0)[0]
    if two > 0 and one > 0:
        yield {"power": round(math.log2(two / one))}


METHOD = Method(
    name="power",
    summary="An even power of the score, for models trained with it.",
    source="Power-Softmax, Zimerman et al., arXiv 2410.09457",
    options=PowerOptions,
    trace=_trace,
    integer_scores=True,
    written=_written,
)
