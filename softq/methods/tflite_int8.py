"""TensorFlow Lite's softmax of 8-bit scores, gemmlowp's fixed point; CMSIS-NN's arm_softmax_s8 is close.

    a = d * step in Q5.26, E = e^-a in Q0.31; E = 0 from 31 / step on
    w = round(E / 2^12) in Q12.19, S = sum(w) = 2^k (1 + x), R = 1 / (1 + x) in Q0.31 by three steps of Newton
    p = round(R E / 2^(k + 31 - B)), B = 8 or 16

Source: TensorFlow Lite's reference kernel (github.com/tensorflow/tflite-micro, 90b983c, reference/softmax.h) and
gemmlowp (16e8662, fixedpoint.h), with whose interpreter this is equal to the bit where that gives a result; the same
arithmetic and constants in CMSIS-NN (99f736a, arm_softmax_s8 and _s8_s16). B = 8 is published for S below 2^28 only,
where k + 23 stays below 32: with 512 elements near the maximum TensorFlow Lite ends the process, and CMSIS-NN shifts a
word of 32 bits by 32, so that its results are others than these. B = 16 is published for S below 2^31.
TensorFlow Lite's optimised kernel for 8-bit results is another one, with a table of floats.
Input: 8-bit integers of `step` per unit (a beta is a part of it), or any f32, rounded to that step, 255 units at most;
-inf is masked, +inf takes all the weight.
Integers: E of each distance is a table of 256 entries, made by the published arithmetic while tracing (`_gemmlowp`).
w at most 2^19. S is published as Q12.19 in 32 bits, which overflows where 4,096 elements are at the maximum; here it is
a sum of 64 bits, the same up to N = 4,095, and from 2^31 on its last 16 bits are dropped before 1 / S. So nothing
overflows for N < 2^28. R and its Newton steps are of 64 bits with the published roundings.
output=pair gives w and S; output=int8 and output=int16 are the published formats without their zero points (-128 and
-32768): 256 or 65,536 for 1, at most 255 or 65,535.
Error: of E below 2.5e-7, of w 2^-20, of S / w and p half a unit of the format: 8 bits lose most of long flat rows.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from softq.methods import Method, Options, Outputs, option
from softq.methods._gemmlowp import exponentials, high_product, rounding_shift
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import rounding_step
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import integer_distance

_SUM_INTEGER_BITS, _SUM_FRACTION = 12, 19
_48_OVER_17, _MINUS_32_OVER_17 = 1515870810, -1010580540  # Q2.29
_DROPPED = 16


@dataclass(frozen=True)
class TfliteInt8Options(Options):
    """Scale of the scores, and what comes out."""

    step: float = rounding_step()
    output: Literal["pair", "int8", "int16"] = option("pair", "weights and their sum, or probabilities as published")
    bias: Bias = bias_option()


def _reciprocal(t: Trace, mantissa: Value) -> Value:
    """Return 2^31 / (1 + x) of a mantissa 2^31 (1 + x), i64, at most 2^31 - 1."""
    half = mantissa >> 1
    x = high_product(half, t.const(_MINUS_32_OVER_17, DType.I64)) + _48_OVER_17
    for _ in range(3):
        error = (1 << 29) - high_product(half, x)
        # In (0, 2) all along, which intervals do not see.
        x = t.clamp(x + (high_product(x, error) << 2), 0, 2**31 - 1)
    return t.min(x << 1, 2**31 - 1)


def _trace(t: Trace, options: TfliteInt8Options) -> Outputs:
    step = float(np.float32(options.step))
    d = integer_distance(t, step, 255, step)
    table = exponentials(step, 256)
    weights = d.weigh(t.lut(t.table([rounding_shift(e, 31 - _SUM_FRACTION) for e in table], DType.I32), d.row))
    total = t.row_sum(t.cast(weights, DType.I64))
    if options.output == "pair":
        return as_pair(d, weights, total, options.bias)
    bits = 8 if options.output == "int8" else 16
    long = total >= 2**31
    short = t.clamp(t.select(long, total >> _DROPPED, total), 1, 2**32 - 1)
    mantissa, shift = t.normalize(t.cast(short, DType.U32))
    over = t.select(long, t.const(_SUM_INTEGER_BITS + _DROPPED, DType.I32), _SUM_INTEGER_BITS) - shift
    over = t.max(over, 0)  # as it is: the greatest element alone is 1
    right = t.cast(over + (31 - bits), DType.I64)
    product = high_product(
        d.weigh(t.lut(t.table(table, DType.I64), d.row)), _reciprocal(t, t.cast(mantissa, DType.I64))
    )
    codes = (product + (t.const(1, DType.I64) << (right - 1))) >> right
    codes = t.cast(t.min(codes, 2**bits - 1), DType.U8 if bits == 8 else DType.U16)
    return as_probabilities(d, codes, total, 2**bits, options.bias, 2**bits - 1)


METHOD = Method(
    name="tflite-int8",
    summary="TensorFlow Lite's fixed-point softmax of 8-bit scores, bit for bit; CMSIS-NN's for sums below 2^28.",
    source="TensorFlow Lite's reference kernel, gemmlowp; CMSIS-NN",
    options=TfliteInt8Options,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
