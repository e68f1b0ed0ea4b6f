"""Rectified scores over their number: w = ReLU(x)^power, p = w / n.

Source: Wortsman et al., Replacing Softmax with ReLU in Vision Transformers, arXiv 2309.08586, L^-alpha * h(x) with
alpha = 1 and h = ReLU or its square. n is the number of elements that take part; the paper, which has no masks, says
the row's length. With divisor=NUMBER it is that number instead (1: no normalizer at all), as graphs that hold the
function itself often have it, with divisor=row the row's length, masked elements included; a fully masked row is then
a row of zeros and not undefined. The row's sum is not 1, and a row without positive scores is 0. With divisor=sum it is
max(sum(w) + eps, least), and with both 0 a row without positive scores is undefined.
Input: any f32 up to 1e38^(1 / power) (greater powers overflow); -inf is masked, +inf takes all the weight.
8-bit integer scores: x = step * (score - zero), a table of 256 weights of W bits, 2^F for 1, and a normalizer in u32,
n * 2^F or the sum of weights; range analysis refuses N for which it does not fit.
Integers: for float scores none. Accumulator: the count, f32, exact up to 2^24; with divisor=sum the sum of the
weights, f32.
Error: power * 2^-24 of each weight, relatively; of the sum N * 2^-24.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from softq.errors import UsageError
from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, scores, step_option, units, weight_bits_option, zero_option
from softq.methods._written import Function, WrittenSettings, plain, small
from softq.rowprog import DType, Trace
from softq.rowprog.library import in_type, whole_power


@dataclass(frozen=True)
class ReluOptions(FloatOptions):
    """The power, and what the weights are divided by."""

    unnamed: ClassVar = {**FLOATS, "eps": 0.0, "least": 0.0}

    power: int = option(1, "exponent of the rectified score", low=1, high=8)
    divisor: float | Literal["length", "row", "sum"] = option(
        "length", "what the weights are divided by; length: the number of elements that take part; row: of all; sum: "
        "the sum of the weights",
        low=2.0**-20, high=2.0**20,
    )  # fmt: skip
    eps: float = option(0.0, "with divisor=sum: what is added to the sum", low=0.0, high=1.0)
    least: float = option(
        0.0, "with divisor=sum: the least that is divided by (torch's F.normalize: 1e-12)", low=0.0, high=1.0
    )
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _trace(t: Trace, options: ReluOptions) -> Outputs:
    for name in ("eps", "least"):
        value = getattr(options, name)
        if value and options.divisor != "sum":
            raise UsageError(f"relu: {name} is {value} with divisor={options.divisor}; it is for divisor=sum")
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x = scores(t)
    weights = whole_power(t, t.max(x.row, 0.0), options.power)
    if options.divisor == "length":
        return x.pair(weights, x.count)
    if options.divisor == "sum":
        total = in_type(t, "sum", t.row_sum(x.only(weights))) + t.const(options.eps, DType.F32)
        if options.least:
            total = t.max(total, t.const(options.least, DType.F32))
        return x.pair(weights, total, always=bool(options.eps or options.least))
    if options.divisor == "row":
        return x.pair(weights, t.cast(t.length(), DType.F32), always=True)
    return x.pair(weights, t.const(options.divisor, DType.F32), always=True)


def _trace_integer(t: Trace, options: ReluOptions) -> Outputs:
    x, power = units(t, options.step, options.zero, options.weight_bits), options.power

    def weight(score: float) -> float:
        return max(score, 0.0) ** power

    if options.divisor == "sum":
        weights, scale = x.share(weight)
        total = t.row_sum(weights) + math.ceil(options.eps * scale)
        if options.least:
            total = t.max(total, math.ceil(options.least * scale))
        return {"weights": weights, "normalizer": total}
    weights, one = x.weigh(weight, x.bits)
    if options.divisor == "length":
        normalizer = x.count() * one
    elif options.divisor == "row":
        normalizer = t.cast(t.length(), DType.U32) * one
    else:
        normalizer = x.divisor(options.divisor, one)
    return {"weights": weights, "normalizer": normalizer}


def _written(f: Function) -> Iterable[WrittenSettings]:
    two, one, *_ = f.of(2.0, 1.0)[0]
    power = round(math.log2(two / one)) if two > 0 and one > 0 else 0
    if 1 <= power <= 8:
        yield {"power": power, "divisor": plain(1 / f.of(1.0)[0, 0])}
        yield {"power": power, "divisor": "row"}
        yield {"power": power, "divisor": "length"}
        # Beside a weight so small, eps shows.
        weight = 1e-8
        eps = weight / f.of(weight ** (1 / power))[0, 0] - weight
        yield {"power": power, "divisor": "sum", "eps": small(eps)}
        weight = 1e-24
        yield {"power": power, "divisor": "sum", "least": small(weight / f.of(weight ** (1 / power))[0, 0])}


METHOD = Method(
    name="relu",
    summary="Rectified scores, or their squares, over the row's length, for models trained with it.",
    source="Wortsman et al., arXiv 2309.08586",
    options=ReluOptions,
    trace=_trace,
    integer_scores=True,
    written=_written,
)
