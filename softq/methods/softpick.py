"""A rectified softmax: w = ReLU(e^x - 1), S = sum |e^x - 1| + eps.

Source: Zuhri et al., Softpick, arXiv 2504.20966, its definition and its stable form, in which all is multiplied by e^-m
(zaydzuhri/softpick-attention@c97f4dc). The paper has m the greatest score of the row; here it is at least 0, so that
e^-m cannot overflow where all scores are far below 0, at the price of nothing: what overflowed has weight 0 anyway.
Scores of 0 and less weigh exactly 0 but count in S, so that the row's sum is at most 1 and a row may be all zeros.
Masked elements do not count in S. As in its code eps is added to the multiplied sum.
|e^x - 1| * e^-m near x = 0 comes from the polynomial of e^x - 1 on |x| <= 0.344, since 1 would swallow x.
Input: any f32; -inf is masked, +inf takes all the weight; a finite score of -5000 or less that is 104 or more below the
row's greatest counts as masked: beside a score of 104 it would add e^-104.
8-bit integer scores: x = step * (score - zero), e^-d of W bits by a table of the distances from m, of which 2^W stands
for 1, and S in u32. A row whose greatest score is a few steps above 0 has its weights within 2^-W / (1 - e^-m) only.
Integers: for float scores none. Accumulator: f32, S in [eps, N * (1 + eps)].
Error: each |e^x - 1| * e^-m within 2e-6 of the exact one, relatively, where it is above 1e-37.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, scores, step_option, units, weight_bits_option, zero_option
from softq.methods._written import Function, WrittenSettings, small
from softq.rowprog import DType, Trace
from softq.rowprog.library import exp_minus, expm1_near, in_type

_NEAR = 0.34375
"""Below ln(2) / 2, up to where the polynomial holds."""


@dataclass(frozen=True)
class SoftpickOptions(FloatOptions):
    """What is added to the normalizer."""

    unnamed = FLOATS

    eps: float = option(1e-8, "what is added to the normalizer (the kernels of the paper: 1e-6)", low=0.0, high=1.0)
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _trace(t: Trace, options: SoftpickOptions) -> Outputs:
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x = scores(t)
    m = t.max(t.row_max(x.only(x.row)), 0.0)
    one = exp_minus(t, m)
    risen = exp_minus(t, in_type(t, "difference", m - x.row)) - one
    if "exponential" not in t.types and "difference" not in t.types:
        near = (x.row <= _NEAR) & (x.row >= -_NEAR)
        risen = t.select(near, expm1_near(t, t.clamp(x.row, -_NEAR, _NEAR)) * one, risen)
    size = t.select(risen < 0.0, 0.0 - risen, risen)
    total = in_type(t, "sum", t.row_sum(x.only(size))) + t.const(options.eps, DType.F32)
    return x.pair(t.max(risen, 0.0), total)


def _trace_integer(t: Trace, options: SoftpickOptions) -> Outputs:
    x, zero, kind = units(t, options.step, options.zero, options.weight_bits), options.zero, t.scores.dtype
    scores = t.scores if t.valid is None else t.select(t.valid, t.scores, kind.low)
    greatest = t.max(t.cast(t.row_max(scores), DType.I32) - zero, 0)
    far = greatest - (t.cast(scores, DType.I32) - zero)
    step, one = options.step, 2**x.bits
    distances = max(kind.high - zero, 0) - min(kind.low - zero, 0)
    table = t.table([round(one * math.exp(-step * d)) for d in range(distances + 1)], DType.I32)
    risen = t.lut(table, far) - t.lut(table, greatest)
    size = x.only(t.cast(t.select(risen < 0, 0 - risen, risen), DType.U32))
    total = t.row_sum(size) + round(options.eps * one)
    # eps is there so that a row of zeros is none of undefined ones.
    normalizer = t.max(total, 1) if options.eps else total
    return {"weights": t.select(risen > 0, size, 0), "normalizer": x.where_any(normalizer)}


def _written(f: Function) -> Iterable[WrittenSettings]:
    # Beside a weight so small, eps shows.
    weight = math.expm1(1e-7)
    eps = weight / f.of(1e-7)[0, 0] - weight
    yield {"eps": small(eps)}


METHOD = Method(
    name="softpick",
    summary="Rectified: e^x - 1 above 0 over the sum of its sizes, for models trained with it.",
    source="Softpick, Zuhri et al., arXiv 2504.20966",
    options=SoftpickOptions,
    trace=_trace,
    integer_scores=True,
    written=_written,
)
