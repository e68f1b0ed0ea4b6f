"""XNNPACK's softmax of 8-bit scores: a table of 256 exponentials of up to 23 bits, and one division per element.

    Q = min((2^32 - 1) / length, 2^23 - 1), t[d] = round(Q * exp(-d * step));  p = min(255, (256 t + sum / 2) div sum)

Source: XNNPACK (github.com/google/XNNPACK, 75db3c0, src/operators/softmax-nc.c and u8-lut32norm), which has it from
QNNPACK (softargmax). There t[0] is Q rounded, so that the sum of a row of as many equal elements can exceed 2^32 - 1 by
the rounding (QNNPACK gives 255 for each of 600 equal scores); here t[0] is at most floor(Q).
Input: 8-bit integers of `step` per unit, or any f32, rounded to that step, 255 units at most; -inf is masked, +inf
takes all the weight.
Integers: weight t, u32, at most 2^23 - 1. `length` is the longest row that has to fit, as the number of channels is in
the source: with the default of 65,536, t has 16 bits; up to 512 elements it has 23.
Normalizer: u32 sum of t, at most length * Q, which is below 2^32; range analysis refuses longer rows.
output=pair gives t and its sum; output=uint8 is the published format, 256 for 1, rounded half up: 256 t is below 2^31
and half the sum is, too, so that all of it fits u32.
Error: of t half a unit of 1 / Q; p is rounded to 1/256, so that long flat rows lose much of their sum.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from softq.methods import Method, Options, Outputs, option
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import rounding_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance

_MOST = 2**23 - 1


@dataclass(frozen=True)
class XnnQu8Options(Options):
    """Scale of the scores, the rows that have to fit, and what comes out."""

    step: float = rounding_step()
    length: int = option(65536, "elements of the longest row that is to fit 32 bits", low=1, high=2**24)
    output: Literal["pair", "uint8"] = option("pair", "weights and their sum, or probabilities of 8 bits as published")
    bias: Bias = bias_option()


def weight_table(step: float, length: int) -> list[int]:
    """Return the weights of all distances; the step is first rounded to f32, as the source holds it."""
    q = min((2**32 - 1) / length, _MOST)
    unit = float(np.float32(step))
    # Half to even, as the source's lrint.
    return [min(round(q * math.exp(-d * unit)), (2**32 - 1) // length) for d in range(256)]


def _trace(t: Trace, options: XnnQu8Options) -> Outputs:
    step = options.step
    d = integer_distance(t, step, 255, step)
    weights = d.weigh(t.lut(t.table(weight_table(step, options.length), DType.U32), d.row))
    total = t.row_sum(weights)
    if options.output == "pair":
        return as_pair(d, weights, total, options.bias)
    codes = t.divide((weights << 8) + (total >> 1), t.max(total, 1))
    return as_probabilities(d, t.cast(t.min(codes, 255), DType.U8), total, 256, options.bias, 255)


METHOD = Method(
    name="xnn-qu8",
    summary="XNNPACK's table of 256 exponentials of up to 23 bits.",
    source="XNNPACK, softmax-nc.c; QNNPACK",
    options=XnnQu8Options,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
