"""Rectified scores over their number: w = ReLU(x)^power, p = w / n.

Source: Wortsman et al., Replacing Softmax with ReLU in Vision Transformers, arXiv 2309.08586, L^-alpha * h(x) with
alpha = 1 and h = ReLU or its square. n is the number of elements that take part; the paper, which has no masks, says
the row's length. With divisor=NUMBER it is that number instead (1: no normalizer at all), as graphs that hold the
function itself often have it; a fully masked row is then a row of zeros and not undefined. The row's sum is not 1,
and a row without positive scores is 0.
Input: any f32 up to 1e19 (power=2: greater squares overflow); -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: none but the count, f32, exact up to 2^24.
Error: power * 2^-24 of each weight, relatively.
Calibration: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softq.methods._contract import Method, Options, OptionValue, option
from softq.methods._unnormalized import scores
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import whole_power

_LENGTH = "length"


@dataclass(frozen=True)
class ReluOptions(Options):
    """The power, and what the weights are divided by."""

    power: OptionValue = option(1, "exponent of the rectified score", low=1, high=2)
    divisor: OptionValue = option(
        _LENGTH, "what the weights are divided by; length: the number of elements that take part",
        low=2.0**-20, high=2.0**20, words=(_LENGTH,),
    )  # fmt: skip


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, ReluOptions)
    x = scores(t)
    weights = whole_power(t, t.max(x.row, 0.0), int(options.power))
    if options.divisor == _LENGTH:
        return x.pair(weights, x.count)
    return x.pair(weights, t.const(float(options.divisor), DType.F32), always=True)


METHOD = Method(
    name="relu",
    summary="Rectified scores, or their squares, over the row's length, for models trained with it.",
    source="Wortsman et al., arXiv 2309.08586",
    options=ReluOptions,
    trace=_trace,
    integer_scores=False,
    drop_in=False,
    calibration="none",
    contract=False,
    normalized=False,
    shift_free=False,
)
