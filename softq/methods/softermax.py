"""Softermax: base 2, a power of four segments, sums of fixed point.

    y = distance in octaves, rounded to f fraction bits (f = b - 6), z = ceil(y), i = z - y in [0, 1)
    w = 2^i >> z, 2^i by the chords of four equal segments;  output = sum(w_j V_j) / sum(w_j)

Source: Softermax, DAC 2021, arXiv 2103.09301; there is no code of its authors. With f <= 2, the paper's case, only the
ends of the segments occur, and 2^i is a table of four entries. The paper takes scores as powers of 2 and trains with
that (base=2); here log2(e) is a part of the distance's unit (base=e), so that trained models keep their softmax.
The paper subtracts the ceiling of the running maximum, so that the sum is only ever shifted; this is the same
arithmetic with the row's own maximum, known first: the factor 2^(max - ceil(max)) cancels between weights and sum.
Input: any f32 (-inf is masked, +inf takes all the weight), or 8-bit integers: of the step ln 2 / 2^f (2^-f in base 2)
as they are, of another one multiplied first.
Integers: distance of b bits, Q6.f (the paper: b = 8, Q6.2); 2^i and w Q1.15, w at most 2^15.
Normalizer: u32 sum of w, Q17.15, at most 2^15 N, which fits for N < 2^17. The paper's Q10.6 loses all that is below
2^-6, unless it is summed wider and rounded once, which output=uint8 does.
output=uint8 is the published Q1.7, 128 for 1: the sum rounded to Q10.6 and capped below 2^10 (rows of 1,024 maxima),
brought into [1, 2), its reciprocal by chords to Q1.7, and the product with w rounded half up. How many segments the
reciprocal has is not published: eight here. Q1.7 loses most of long flat rows: at N = 1024 a sum of 0.04 remains.
Error of w: half a step of the distance (f = 2: 9 %), 2^-15, and of the chords 3.8e-3 for f > 2, relatively.
Calibration: none.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import own_step
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import IntegerDistance, integer_distance

_WHOLE_BITS = 6
_WEIGHT_FRACTION = 15
_SUM_FRACTION = 6
_OUTPUT_FRACTION = 7
_SEGMENTS = 4
_RECIPROCAL_SEGMENTS = 8


@dataclass(frozen=True)
class SoftermaxOptions(Options):
    """Width and base of the distances, and what comes out."""

    bits: int = option(8, "bits of a distance in octaves, 6 of them whole ones", low=6, high=10)
    base: Literal["e", "2"] = option("e", "e, or 2 as the paper trains with")
    step: float | Auto = own_step()
    output: Literal["pair", "uint8"] = option("pair", "weights and their sum, or probabilities of 8 bits as published")
    bias: Bias = bias_option()


def power_table(fraction: int) -> list[int]:
    """Return 2^i in Q1.15 for i = 0 to 1 in steps of 2^-fraction, 1 left out, on the chords of four segments."""
    knots = [2.0 ** (k / _SEGMENTS) for k in range(_SEGMENTS + 1)]
    table: list[int] = []
    for n in range(2**fraction):
        segment, rest = divmod(Fraction(n * _SEGMENTS, 2**fraction), 1)
        value = knots[int(segment)] + (knots[int(segment) + 1] - knots[int(segment)]) * float(rest)
        table.append(round(value * 2**_WEIGHT_FRACTION))
    return table


def _trace(t: Trace, options: SoftermaxOptions) -> Outputs:
    fraction = options.bits - _WHOLE_BITS
    unit = 2.0**-fraction * (math.log(2) if options.base == "e" else 1.0)
    d = integer_distance(t, unit, 2**options.bits - 1, unit if options.step == "auto" else options.step)
    # 2^i is below 2^16: from 16 octaves on the weight is 0.
    near = t.min(d.row, (_WEIGHT_FRACTION + 1) << fraction)
    z = (near + (2**fraction - 1)) >> fraction
    ahead = t.clamp((z << fraction) - near, 0, 2**fraction - 1)  # where it lies, which intervals do not see
    power = t.lut(t.table(power_table(fraction), DType.I32), ahead) >> z
    weights = d.weigh(t.min(power, 1 << _WEIGHT_FRACTION))  # as it is: above the first entry z is 1 at least
    total = t.row_sum(t.cast(weights, DType.U32))
    if options.output == "pair":
        return as_pair(d, t.cast(weights, DType.U16), total, options.bias)
    one = 2**_OUTPUT_FRACTION
    return as_probabilities(d, _divide_published(t, d, weights, total), total, one, options.bias, one)


def _divide_published(t: Trace, d: IntegerDistance, weights: Value, total: Value) -> Value:
    """Return w / total in Q1.7: total in Q10.6, its reciprocal on chords in Q1.7."""
    dropped = _WEIGHT_FRACTION - _SUM_FRACTION
    short = t.clamp((total + (1 << (dropped - 1))) >> dropped, 1 << _SUM_FRACTION, 2**16 - 1)
    mantissa, shift = t.normalize(short)
    # The mantissa is 1.m: its first three fraction bits are the segment, the next eight where in it.
    top = t.cast(mantissa >> 20, DType.I32)
    segment, rest = (top >> 8) - _RECIPROCAL_SEGMENTS, top - ((top >> 8) << 8)
    knots = [round(2**15 / (1 + Fraction(k, _RECIPROCAL_SEGMENTS))) for k in range(_RECIPROCAL_SEGMENTS + 1)]
    falls = [a - b for a, b in itertools.pairwise(knots)]
    start = t.lut(t.table(knots[:-1], DType.I32), segment)
    fine = start - ((t.lut(t.table(falls, DType.I32), segment) * rest) >> 8)
    reciprocal = (fine + 128) >> 8
    right = 31 - _SUM_FRACTION - shift + _WEIGHT_FRACTION
    codes = (weights * reciprocal + (t.const(1, DType.I32) << (right - 1))) >> right
    return t.cast(d.weigh(t.min(codes, 1 << _OUTPUT_FRACTION)), DType.U8)


METHOD = Method(
    name="softermax",
    summary="Powers of two by four segments, in fixed point.",
    source="Softermax, DAC 2021, arXiv 2103.09301",
    options=SoftermaxOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
