"""TensorFlow Lite's softmax of 16-bit scores: two tables of 513 entries; CMSIS-NN's arm_softmax_s16 is close.

    a = min(round(d * step * 65535 / 10), 65535), e = table of e^-x over [0, 10] at a, between its entries on chords
    S = sum(e) = 2^k (1 + x), R = table of 1 / (1 + x) at x;  p = round(e R / 2^(k + 15))

Source: TensorFlow Lite's kernel (github.com/tensorflow/tflite-micro, 90b983c, reference/softmax.h, SoftmaxInt16; its
tables are made as in internal/common.h in double precision, with whose interpreter this is equal to the bit) and
CMSIS-NN (99f736a, arm_softmax_s16, whose caller gives the tables). It differs from this in two places: a row of one
element gives 32,768, which wraps to -32,768, and here 32,767; with tables made in f32, as for microcontrollers,
1 / (1 + x) has 24,966 at entry 160 and 20,816 at 294, and here 24,967 and 20,815.
Input: 16-bit or 8-bit integers of `step` per unit (a beta is a part of it), or any f32, rounded to that step, 65,535
units at most; -inf is masked, +inf takes all the weight. With the default step of 10 / 65535, a is the distance itself.
Integers: distance d, 16 bits; d * step * 65535 / 10 by a multiplier of 31 bits and a shift, with the published two
roundings, within 63 bits. e in Q0.15, at most 32,762, as the last entry is never reached; at 10 and beyond it stays 1
or 2 of 2^15, e^-10, not 0, unless the element is masked, or a float score 104 or more below the maximum.
Normalizer: u32 sum of e, Q17.15; cannot overflow for N <= 131,096 (published as i32, for N <= 65,548).
output=pair gives e and S; output=int16 is the published format, 32,768 for 1, at most 32,767. e R is below 2^30.
Error of e / 2^15: 2e-4, nearly all of it common to the row; the entries of both tables are rounded to 2^-15.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods._gemmlowp import interpolation_table, quantize_multiplier
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import integer_distance

_REACH = 10.0
_ENDS = 2**16 - 1
_ONE_BITS = 15


@dataclass(frozen=True)
class TfliteInt16Options(Options):
    """Scale of the scores, and what comes out."""

    step: float | Auto = option(
        "auto", "the real value of one unit of integer scores, or what float ones are rounded to; auto: 10 / 65535",
        low=2.0**-24, high=16.0,
    )  # fmt: skip
    output: Literal["pair", "int16"] = option("pair", "weights and their sum, or probabilities as published")
    bias: Bias = bias_option()


def exponential_table() -> list[int]:
    """Return the entries of e^x over [-10, 0]."""
    return interpolation_table(math.exp, -_REACH, 0.0)


def reciprocal_table() -> list[int]:
    """Return the entries of 1 / (1 + x) over [0, 1]."""
    return interpolation_table(lambda x: 1 / (1 + x), 0.0, 1.0)


def _look_up(t: Trace, make: Callable[[], list[int]], at: Value) -> Value:
    """Return the interpolated entry, i32, at an i32 from 0 to 65,535."""
    entries = make()
    slopes = [b - a for a, b in itertools.pairwise(entries)]
    place = at >> 7
    rest = at - (place << 7)
    rise = (t.lut(t.table(slopes, DType.I32), place) * rest + 64) >> 7
    # Between the entries, which intervals do not see of a sum.
    return t.clamp(t.lut(t.table(entries[:-1], DType.I32), place) + rise, 0, 2**_ONE_BITS - 1)


def _rescale(t: Trace, d: Value, factor: float) -> Value:
    """Return round(d * factor), at most 65,535, of an i32 from 0 to 65,535, with the published roundings."""
    multiplier, shift = quantize_multiplier(factor)
    left, right = max(shift, 0), max(-shift, 0)
    # Beyond this distance the result is at its end in any case; 2 are for the roundings.
    near = t.min(t.cast(d, DType.I64), min(math.ceil(_ENDS / factor) + 2, _ENDS)) << left
    # The published product is of a negative number, half up: of the distance, half down.
    product = (near * multiplier + ((1 << 30) - 1)) >> 31
    return t.cast(t.min((product + (1 << right >> 1)) >> right, _ENDS), DType.I32)


def _trace(t: Trace, options: TfliteInt16Options) -> Outputs:
    given = options.step != "auto"
    # A model file holds the scale in f32.
    step = float(np.float32(float(options.step))) if given else _REACH / _ENDS
    d = integer_distance(t, step, _ENDS, step)
    a = _rescale(t, d.row, step / (_REACH / _ENDS)) if given else d.row
    weights = d.weigh(_look_up(t, exponential_table, _ENDS - a))
    total = t.row_sum(t.cast(weights, DType.U32))
    if options.output == "pair":
        return as_pair(d, t.cast(weights, DType.U16), total, options.bias)
    mantissa, zeros = t.normalize(t.max(total, 1))
    # Half the mantissa, 2^30 (1 + x), rounded to 16 fraction bits; published for sums below 2^31.
    x = t.min(t.cast(((mantissa >> 1) + (1 << 13)) >> 14, DType.I32) - 2**16, _ENDS)
    right = t.max(31 - zeros, 1)  # as it is: the greatest element alone is 32767
    codes = (weights * _look_up(t, reciprocal_table, x) + (t.const(1, DType.I32) << (right - 1))) >> right
    greatest = 2**_ONE_BITS - 1
    codes = t.cast(t.min(codes, greatest), DType.U16)
    return as_probabilities(d, codes, total, 2**_ONE_BITS, options.bias, greatest)


METHOD = Method(
    name="tflite-int16",
    summary="TensorFlow Lite's softmax of 16-bit scores by two tables, bit for bit; CMSIS-NN's but for special cases.",
    source="TensorFlow Lite's kernel; CMSIS-NN",
    options=TfliteInt16Options,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
