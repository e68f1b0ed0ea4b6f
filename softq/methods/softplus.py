"""The softplus of the score in the exponential's place: w = ln(1 + e^x), S = max(sum(w) + eps, least).

Source: length-scaled softplus attention, arXiv 2501.13428: LSSA (power=1) and LSSAR, which sharpens the rows A of LSSA:
w = ReLU(n * A - offset)^power with power = 15 and offset = 1, 0 in rows of up to 3 elements, normalized anew. n is the
number of elements that take part, in a causal row those that the query sees. The paper's scale log(d) * log(n) belongs
to the scores and is not applied here. Where no element is above the offset all weigh the same: the paper's 0 / 0.
softplus(x) = max(x, 0) + ln(1 + e), e = e^-|x|, with ln(1 + e) = ln(u) * e / (u - 1), u = 1 + e rounded (Kahan), which
is exact where e is tiny. Only ratios count: with M = max(1, greatest score) it is softplus(x) / M, which cannot
overflow, and powers are of n * A - offset over its greatest.
Input: any f32; -inf is masked, +inf takes all the weight; a finite score of -5000 or less that is 104 or more below the
row's greatest counts as masked, which takes nothing away.
8-bit integer scores, power=1: x = step * (score - zero), a table of 256 weights of W bits, and their sum in u32.
Integers: for float scores none. Accumulator: f32, S <= 2 * N.
Error: each softplus within 2e-6, relatively, where it is above 3e-38; with power=15 what N * 2^-24 of S makes of
n * A - offset, times 15.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from softq.errors import UsageError
from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, Scores, scores, step_option, units, weight_bits_option, zero_option
from softq.methods._written import Function, WrittenSettings, plain, small
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import exp_minus, in_type, whole_power

_EPS = 1e-8
"""Of the paper's code."""

_SHORT = 3.0
"""Rows of up to so many elements have no offset, as in the paper's code."""


@dataclass(frozen=True)
class SoftplusOptions(FloatOptions):
    """How rows are sharpened."""

    unnamed: ClassVar = {**FLOATS, "eps": _EPS, "least": 0.0}

    power: int = option(1, "exponent that sharpens a row; 1: none, the paper's LSSAR: 15", low=1, high=16)
    offset: float = option(1.0, "with a power above 1, what is taken off n * A first", low=0.0, high=16.0)
    eps: float = option(_EPS, "what is added to the sum (of the paper's code)", low=0.0, high=1.0)
    least: float = option(
        0.0, "the least that is divided by (torch's F.normalize: 1e-12, with eps=0)", low=0.0, high=1.0
    )
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _softplus(t: Trace, x: Value) -> Value:
    e = exp_minus(t, t.select(x < 0.0, 0.0 - x, x))
    u = e + 1.0
    kahan = t.log2(u) * t.const(math.log(2), DType.F32) * t.divide(e, u - 1.0)
    return t.max(x, 0.0) + t.select(u <= 1.0, e, kahan)


def _sharpen(t: Trace, x: Scores, part: Value, options: SoftplusOptions) -> tuple[Value, Value]:
    offset = t.select(x.count > _SHORT, t.const(options.offset, DType.F32), 0.0)
    above = t.max(part * x.count - offset, 0.0)
    greatest = t.row_max(x.only(above))
    weights = whole_power(
        t, t.select(greatest > 0.0, t.divide(above, greatest), t.const(1.0, DType.F32)), options.power
    )
    return weights, in_type(t, "sum", t.row_sum(x.only(weights)))


def _trace(t: Trace, options: SoftplusOptions) -> Outputs:
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x = scores(t)
    inverse = t.divide(t.const(1.0, DType.F32), t.max(t.row_max(x.only(x.row)), 1.0))
    weights = _softplus(t, x.row) * inverse
    total = in_type(t, "sum", t.row_sum(x.only(weights))) + t.const(options.eps, DType.F32) * inverse
    if options.least:
        total = t.max(total, t.const(options.least, DType.F32) * inverse)
    if options.power > 1:
        weights, total = _sharpen(t, x, t.divide(weights, total), options)
    return x.pair(weights, total)


def _trace_integer(t: Trace, options: SoftplusOptions) -> Outputs:
    if options.power > 1:
        raise UsageError(f"softplus of {t.scores.dtype.value} scores: power is {options.power}; only 1 is pointwise")
    x = units(t, options.step, options.zero, options.weight_bits)
    weights, scale = x.share(lambda score: max(score, 0.0) + math.log1p(math.exp(-abs(score))))
    total = t.row_sum(weights) + math.floor(options.eps * scale + 0.5)
    if options.least:
        total = t.max(total, math.floor(options.least * scale + 0.5))
    return {"weights": weights, "normalizer": x.where_any(total)}


def _written(f: Function) -> Iterable[WrittenSettings]:
    # Where all weigh so little, eps shows.
    low = -25.0
    weight = math.log1p(math.exp(low))
    eps = weight / f.of(rest=low)[0, 0] - f.length * weight
    yield {"eps": small(eps)}
    # Where they weigh less yet, the least that is divided by.
    lower = -60.0
    yield {"eps": 0.0, "least": small(math.log1p(math.exp(lower)) / f.of(rest=lower)[0, 0])}
    # A sharpened row: u = n * softplus / S of three elements; ((u0 - o) / (u1 - o))^power is the quotient of two.
    scores = (3.0, 2.0, 1.5)
    u = np.logaddexp(0, scores)
    u = u * f.length / (u.sum() + (f.length - len(scores)) * np.logaddexp(0, -30.0))
    given = f.of(*scores, rest=-30.0)[0]
    if not given[0] > given[1] > 0:
        return
    for power in range(2, 17):
        rate = float(given[0] / given[1]) ** (1 / power)
        offset = max(plain(round(float((u[0] - rate * u[1]) / (1 - rate)), 5)), 0.0)
        yield from ({"power": power, "offset": offset, "eps": eps} for eps in (_EPS, 0.0))


METHOD = Method(
    name="softplus",
    summary="The softplus of the score, sharpened by a power if wanted, for models trained with it.",
    source="Length-scaled softplus attention, arXiv 2501.13428",
    options=SoftplusOptions,
    trace=_trace,
    integer_scores=True,
    written=_written,
)
