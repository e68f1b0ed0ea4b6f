"""ITA: powers of two of 8 bits, and one division per row.

    d = X_max - X with X in units of eps = ln 2 / 2^f, shift = (d + 2^(f-1)) >> f
    e = 256 >> shift;  p = (floor(255 * 256 / sum(e)) >> shift) / 256

Source: ITA, ISLPED 2023, arXiv 2307.03493, section on the softmax, and its code (github.com/pulp-platform/ITA,
ba96519). The scores have to have the scale eps: f = 5 is the publication (eps = 8 / (256 log2 e) = 0.0217, a range of
5.5 nat, which trained models exceed), f = 0 is the code of today (eps = ln 2, powers of two only).
ITA streams a row in groups of 16 with a running maximum, so that its result depends on the order by one shift; this is
the same arithmetic with the maximum known first.
Input: any f32 (-inf is masked, +inf takes all the weight), d = rint((max - x) / eps), at most 255; or 8-bit integers:
of the step eps as they are, of another one multiplied by step / eps first.
Integers: shift, 0 to 9, where a weight is 0; e, u16, 256 for 1. With f = 5 the greatest distance has the shift 8 and so
the weight 1 / 256, never 0, unless it is masked, or a float score 104 or more below the maximum.
Normalizer: u32 sum of e, at most 256 N, which fits for N < 2^24 (ITA's 19 bits are for N <= 2,048).
output=uint8 is the published format, 256 for 1, at most 255; it floors twice: the sum of a row falls to 0.8 at N = 197.
The least sum of a row that is not fully masked is 256, so that the quotient has 8 bits.
Error of e / 256: a factor of 2^(+-1/2), and 2^-8 by the floor; beyond 255 eps the weight stays what it is there.
Calibration: none; the quantizer in front has to hit eps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import own_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance

_ONE = 256
_ZERO_SHIFT = 9


@dataclass(frozen=True)
class ItaOptions(Options):
    """Scale of the scores, and what comes out."""

    fraction: int = option(
        5, "fraction bits of a shift: units are of ln 2 / 2^fraction; 5 as published, 0 as in its code", low=0, high=5
    )
    step: float | Auto = own_step()
    output: Literal["pair", "uint8"] = option("pair", "weights and their sum, or probabilities of 8 bits as published")
    bias: Bias = bias_option()


def _trace(t: Trace, options: ItaOptions) -> Outputs:
    fraction = options.fraction
    unit = math.log(2) / 2**fraction
    d = integer_distance(t, unit, 255, unit if options.step == "auto" else options.step)
    shift = t.min((d.row + (2**fraction >> 1)) >> fraction, _ZERO_SHIFT)
    weights = d.weigh(t.const(_ONE, DType.I32) >> shift)
    total = t.row_sum(t.cast(weights, DType.U32))
    if options.output == "pair":
        return as_pair(d, t.cast(weights, DType.U16), total, options.bias)
    inverse = t.cast(t.min(t.divide(t.const(255 * _ONE, DType.U32), t.max(total, 1)), 255), DType.I32)
    codes = t.cast(d.weigh(inverse >> shift), DType.U8)
    return as_probabilities(d, codes, total, _ONE, options.bias, 255)


METHOD = Method(
    name="ita",
    summary="Powers of two of 8 bits, one division a row.",
    source="ITA, ISLPED 2023, arXiv 2307.03493",
    options=ItaOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
