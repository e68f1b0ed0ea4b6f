"""onnxruntime's QLinearSoftmax: a table of 256 float exponentials for 8-bit scores, without its defects.

    t[d] = e^(-d * step);  p = min(rint(levels * t / sum(t)), 255)

Source: onnxruntime, operator com.microsoft.QLinearSoftmax (07d59c0, qlinear_softmax.cc). What differs, on purpose:

* There the table is scaled up as far as a float sum of N allows, and the sum then divides; the scale cancels. Here the
  greatest entry is 1. A code differs where the quotient lies within a rounding of f32 from the middle of two codes.
* There p of 0.998 and more wraps around to the code of 0 at 256 levels: for int8 results at that commit, for uint8 ones
  in release 1.31.1. Here the code saturates at 255.
* There a row whose sum is 0 ends the work on all rows after it. Here the maximum alone is 1; a fully masked row is 0.
* There 1 / scale of the result is floored; here `levels`, 1 / scale, may have a fraction.

Input: 8-bit integers of `step` per unit, or any f32, rounded to that step, 255 units at most; -inf is masked, as is
what lies 104 or more below the maximum, +inf takes all the weight.
Integers: the distance, 8 bits, and with output=uint8 the code. Weight and sum are f32: exact to 2^-24, the sum within
N * 2^-24, in any order.
output=pair gives t and its sum; output=uint8 is the published format, with `levels` for 1.
Error: that of f32; p is rounded to 1 / levels, so that long flat rows lose much of their sum.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from softq.methods import Method, Outputs, option
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._roundings import FloatOptions
from softq.methods._scale import rounding_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import in_type, integer_distance

_GREATEST_CODE = 255


@dataclass(frozen=True)
class QlinearOptions(FloatOptions):
    """Scale of the scores, and what comes out."""

    step: float = rounding_step()
    levels: float = option(256.0, "1 / scale of the result of output=uint8", low=1.0, high=65536.0)
    output: Literal["pair", "uint8"] = option("pair", "weights and their sum, or probabilities of 8 bits as published")
    bias: Bias = bias_option()


def _trace(t: Trace, options: QlinearOptions) -> Outputs:
    step = options.step
    d = integer_distance(t, step, 255, step)
    unit = float(np.float32(step))
    # The entries are normal numbers or 0: what is less counts for nothing beside the maximum's 1.
    table = [math.exp(-i * unit) if i * unit < 87 else 0.0 for i in range(256)]
    weights = d.weigh(in_type(t, "exponential", t.lut(t.table(table, DType.F32), d.row)))
    total = in_type(t, "sum", t.row_sum(weights))
    if options.output == "pair":
        return as_pair(d, in_type(t, "product", weights), total, options.bias)
    levels = t.const(options.levels, DType.F32)
    codes = t.clamp(t.rint(t.divide(weights * levels, t.max(total, 1.0))), 0.0, float(_GREATEST_CODE))
    return as_probabilities(d, t.cast(codes, DType.U8), total, options.levels, options.bias, _GREATEST_CODE)


METHOD = Method(
    name="qlinear",
    summary="A table of 256 float exponentials, as onnxruntime's QLinearSoftmax.",
    source="onnxruntime, com.microsoft.QLinearSoftmax",
    options=QlinearOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
