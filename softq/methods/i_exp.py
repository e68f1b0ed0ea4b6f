"""I-BERT's integer exponential: a polynomial of the second degree and a shift, of distances with a known scale.

    z = d div q, u = d - z q, m = C - u (B - u)      (`softq.methods._integer_exp` has the constants and their source)
    w = (m << k) >> z, or m >> (z - k) for k < 0;  output = sum(w_j V_j) / sum(w_j)

Source: I-BERT, ICML 2021, arXiv 2101.01321, algorithms 2 and 3, with the constants of its code
(github.com/kssteven418/I-BERT, 1b09c75). There w = m * 2^(30 - z), of 40 bits for S = 0.06, and only simulated in
floats. Here k is chosen so that C << k has W bits: the same m and z, shifted to where all fits 32 bits.
Input: any f32 (-inf is masked, +inf takes all the weight), rounded to units of S = `step`, or 8-bit integers of that
step.
Integers: distance d of `bits` bits; m, scale 0.35815147 S^2, at most C < 2^26; m << k below 2^W for k >= 0, and m
itself else. Weight w, unsigned, W bits, C << k for 1. z is at most W, where the weight is 0.
Normalizer: u32 sum of weights, each below 2^W; cannot overflow for N <= 2^(32 - W), 131,072 with W = 15.
output=uint8 is the published arithmetic, in 64 bits: w = m * 2^(30 - z), z <= 30, rounded to 16 bits with 32,767 for 1
(the code's range of the exponential is calibrated; its greatest value is 1 in every row), then
floor(w * floor(2^32 / sum) / 2^24) with 256 for 1, at most 255. It floors: the sum of a row falls to 0.8 at N = 197 and
0.1 at N = 1024. Its sum needs 15 + log2(N) bits.
Error of w / (C << k) as e^(-S d), without that of rounding the distance to S (half a step): 1.9e-3 by the polynomial,
2^-W by the shift, and what rounding q, B and C to whole numbers adds. In all at most 9.8e-3 for the default step,
ln 2 / 12, 3.3e-3 for S = 2^-8, 2.0e-3 for S = 2^-12; but 0.028 for S = 1/16, where q = 12 stands for 11.09.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods import _integer_exp as integer_exp
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import bits_option, scaled_distance, step_option
from softq.rowprog import DType, Trace

_PUBLISHED_OCTAVES = 30
_SIXTEEN_BITS = 2**15 - 1


@dataclass(frozen=True)
class IExpOptions(Options):
    """Width and scale of distances, width of weights, and what comes out."""

    bits: int = bits_option()
    step: float | Auto = step_option(integer_exp.AUTO)
    weight_bits: int = option(15, "bits of an unsigned weight", low=8, high=24)
    output: Literal["pair", "uint8"] = option(
        "pair", "weights and their sum in 32 bits, or the published arithmetic in 64 bits, with 8 bits of probability"
    )
    bias: Bias = bias_option()


def _trace(t: Trace, options: IExpOptions) -> Outputs:
    step = integer_exp.step_of(options.bits, options.step)
    d = scaled_distance(t, options.bits, options.step, step)
    if options.output == "uint8":
        e = integer_exp.exponential(t, d.row, step, _PUBLISHED_OCTAVES)
        one = t.const(e.one, DType.I64) << t.cast(e.octaves, DType.I64)
        # round(m 2^(30 - z) * 32767 / (C 2^30)), half up, as one quotient of whole numbers.
        wide = t.divide(t.cast(e.mantissa, DType.I64) * (2 * _SIXTEEN_BITS) + one, one * 2)
        weights = d.weigh(t.min(wide, _SIXTEEN_BITS))
        total = t.row_sum(weights)
        factor = t.divide(t.const(2**32, DType.I64), t.max(total, 1))
        codes = t.min((weights * factor) >> 24, 255)
        return as_probabilities(d, t.cast(codes, DType.U8), total, 256, options.bias, 255)
    weights = d.weigh(integer_exp.weights(t, d.row, step, options.weight_bits))
    return as_pair(d, weights, t.row_sum(weights), options.bias)


METHOD = Method(
    name="i-exp",
    summary="A polynomial of the second degree and a shift, in 32 bits.",
    source="I-BERT, ICML 2021, arXiv 2101.01321",
    options=IExpOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
