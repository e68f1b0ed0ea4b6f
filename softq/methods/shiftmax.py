"""I-ViT's Shiftmax: the exponential by shifts and additions alone.

    y = d + ceil(d / 2) - ceil(d / 16)          (-d log2(e) with log2(e) ~ 1.4375, by floors of negative numbers)
    z = y div q, u = y - z q, q = ceil(1 / S)   (2^-(S u) ~ 1 - S u / 2)
    w = ((2 q - u) << n) >> (z + 1);  output = sum(w_j V_j) / sum(w_j)

Source: I-ViT, ICCV 2023, arXiv 2207.01405, equations of Shiftmax, as in its code (github.com/zkkli/I-ViT, 380ba99, the
PyTorch model). Its TVM kernels differ: q = trunc(1 / S + 1), u is halved before it is subtracted, n = 16.
Input: any f32 (-inf is masked, +inf takes all the weight), rounded to units of S = `step`, or 8-bit integers of that
step.
Integers: distance d of `bits` bits; y and u, the same scale; weight w, u32, q * 2^n for 1. The source has n = 15, whose
sum overflows 32 bits from N = 2^31 / (q 2^15) on, 4,096 for S = 1/16. Here n is the greatest with
length * q * 2^n < 2^31, at most 15: `length` is the greatest N that is to fit; range analysis refuses greater ones.
far=zero: a weight ends as 0 once it is shifted out. far=kept is the published clamp of y at n q, beyond which each
element that is not masked keeps the weight q or so, 2^-n of the greatest: with a small n a long row gains a mass of
N 2^-n by that.
output=int16 and output=int8 are the published formats: floor(w * floor((2^31 - 1) / sum) / 2^(32 - b)) with 2^(b - 1)
for 1, within 31 bits. Its PyTorch model has b = 16, its TVM kernels b = 8; both floor.
Error of w / (q 2^n) as e^(-S d): 0.044 by the straight line (6 % relatively) and by log2(e), 0.046 with the floors for
S = 1/256, 0.065 for S = 1/16. Of the distance, half a step. S should divide 1, as the default does: q is rounded up.
Calibration: none; the scale of integer scores is the graph's. The paper trains with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from softq.errors import UsageError
from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import RANGE, bits_option, scaled_distance, step_option
from softq.rowprog import DType, Trace

_GREATEST_SHIFT = 15


@dataclass(frozen=True)
class ShiftmaxOptions(Options):
    """Width and scale of distances, the rows that have to fit, what far elements weigh, what comes out."""

    bits: int = bits_option()
    step: float | Auto = step_option("16 / 2^bits")
    length: int = option(65536, "elements of the longest row that is to fit 32 bits", low=1, high=2**20)
    far: Literal["zero", "kept"] = option("zero", "weight beyond n octaves: 0, or 2^-n as published")
    output: Literal["pair", "int16", "int8"] = option("pair", "weights and their sum, or probabilities as published")
    bias: Bias = bias_option()


def shift_of(length: int, q: int) -> int:
    """Return n, the greatest shift up to 15 with length * q * 2^n < 2^31.

    Raises:
        UsageError: there is none from 1 on.
    """
    n = min(((2**31 - 1) // (length * q)).bit_length() - 1, _GREATEST_SHIFT)
    if n < 1:
        raise UsageError(f"shiftmax: rows of {length} elements with 1 / step of {q}; allowed is a product below 2^30")
    return n


def _trace(t: Trace, options: ShiftmaxOptions) -> Outputs:
    step = RANGE / 2**options.bits if options.step == "auto" else options.step
    d = scaled_distance(t, options.bits, options.step, step)
    q = math.ceil(1 / step)
    n = shift_of(options.length, q)
    # 2 q << n has at most 31 bits: from z = that many on the weight is 0, and z + 1 stays below the width of i32.
    octaves = n if options.far == "kept" else n + (2 * q).bit_length() - 1
    y = t.max(d.row + ((d.row + 1) >> 1) - ((d.row + 15) >> 4), 0)  # never negative, which intervals do not see
    near = t.min(y, q * octaves)
    z = t.divide(near, t.const(q, DType.I32))
    u = near - z * q
    weights = d.weigh(t.cast(((2 * q - u) << n) >> (z + 1), DType.U32))
    total = t.row_sum(weights)
    if options.output == "pair":
        return as_pair(d, weights, total, options.bias)
    bits = 16 if options.output == "int16" else 8
    factor = t.divide(t.const(2**31 - 1, DType.U32), t.max(total, 1))
    codes = (weights * factor) >> (32 - bits)
    codes = t.cast(codes, DType.U16 if bits == 16 else DType.U8)
    return as_probabilities(d, codes, total, 2 ** (bits - 1), options.bias, 2**bits - 1)


METHOD = Method(
    name="shiftmax",
    summary="The exponential by shifts and additions, the shift chosen from row length and scale.",
    source="I-ViT, ICCV 2023, arXiv 2207.01405",
    options=ShiftmaxOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
