"""E2Softmax of SOLE: powers of two of 4-bit exponents, and a logarithmic division.

    y = d + floor(d / 2) - floor(d / 16)              (d log2(e) with log2(e) ~ 1.4375)
    k = min((y + 2^(f-1)) >> f, 2^b - 1), w = 2^-k;  output = sum(w_j V_j) / sum(w_j)

with d the distance from the maximum in units of 2^-f. Division as published (output=uint8):

    sum(w) = 2^s (1 + m), p = c 2^-(k + s), c = 0.818 for m < 1/2, else 0.568

Source: SOLE, ICCAD 2023, arXiv 2510.17189 (Log2Exp and ALDivision). Readings of it disagree on whether the exponent is
floored or rounded: it is rounded here, which halves the error. The constants are the means of 1 / (1 + m) over the two
halves, up to an offset; a public RTL has them the other way round, with an error of 36 % in place of 9 %.
SOLE updates a running maximum, with shifts of the sum; this is the same arithmetic with the maximum known first.
Input: any f32 (-inf is masked, +inf takes all the weight), d = rint((max - x) * 2^f), at most 255; or 8-bit integers:
of the step 2^-f as they are, of another one multiplied by step * 2^f first.
Integers: k of b bits; weight 2^(15 - k), u16. The greatest code weighs 2^-15 for b = 4, not 0: far elements of a long
row add up. Masked ones weigh exactly 0, as do float scores 104 or more below the maximum.
Normalizer: u32 sum of weights, at most 2^15 N, which fits for N < 2^17.
output=uint8: the published 8 bits, 256 for 1; c has 15 fraction bits and p is rounded once, half up. The row's sum is 1
on average, and 20 % off in single rows: a row of one element gives 0.82. Its codes are uniform, so that bias=query
takes their mean error off: of the relative error of P V 0.049 remains of 0.50 at N = 1024 and a deviation of 1, 0.10 of
0.12 at N = 197 and 4, where most of it is the division's own.
Error of w: a factor of 2^(+-1/2), and 0.4 % of d in the exponent; of the division 9 % on average, 23 % at most.
Calibration: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods._outputs import UNCORRECTED, Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import own_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance

_ONE_BITS = 15
_LOWER_HALF, _UPPER_HALF = round(0.818 * 2**_ONE_BITS), round(0.568 * 2**_ONE_BITS)


@dataclass(frozen=True)
class E2SoftmaxOptions(Options):
    """Width of the exponents, scale of the scores, and what comes out."""

    unnamed = UNCORRECTED

    bits: int = option(4, "bits of an exponent", low=2, high=4)
    fraction: int = option(4, "fraction bits of a distance: units are of 2^-fraction", low=1, high=8)
    step: float | Auto = own_step()
    output: Literal["pair", "uint8"] = option(
        "pair", "weights and their sum, or probabilities of 8 bits by the published division"
    )
    bias: Bias = bias_option()


def _trace(t: Trace, options: E2SoftmaxOptions) -> Outputs:
    fraction = options.fraction
    unit = 2.0**-fraction
    d = integer_distance(t, unit, 255, unit if options.step == "auto" else options.step)
    y = d.row + (d.row >> 1) - (d.row >> 4)
    k = t.min((y + (2**fraction >> 1)) >> fraction, 2**options.bits - 1)
    k = t.max(k, 0)  # never negative, which intervals do not see
    weights = d.weigh(t.const(2**_ONE_BITS, DType.I32) >> k)
    total = t.row_sum(t.cast(weights, DType.U32))
    if options.output == "pair":
        return {**as_pair(d, t.cast(weights, DType.U16), total, options.bias), "codes": t.cast(k, DType.U8)}
    mantissa, shift = t.normalize(t.max(total, 1))
    # The sum is 2^(31 - shift - 15) (1 + m); a row that is not fully masked has one of at least 2^0.
    c = t.select(mantissa < 3 << 30, t.const(_LOWER_HALF, DType.I32), _UPPER_HALF)
    # c has 15 bits: what is shifted by more than them is 0.
    right = t.min(t.max(31 - _ONE_BITS - shift, 0) + k + (_ONE_BITS - 8), _ONE_BITS + 1)
    codes = (c + (t.const(1, DType.I32) << (right - 1))) >> right
    return as_probabilities(d, t.cast(d.weigh(t.min(codes, 255)), DType.U8), total, 256, options.bias, 255)


METHOD = Method(
    name="e2softmax",
    summary="Powers of two of 4-bit exponents, with SOLE's logarithmic division as an option.",
    source="SOLE, ICCAD 2023, arXiv 2510.17189",
    options=E2SoftmaxOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
