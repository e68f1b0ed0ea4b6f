"""The softmax times the score's place between the least and the greatest: p' = p * (x - low) / (high - low + eps).

low = min(least x, 0), high = max(greatest x, 0), p the exact softmax.
Source: Zheng et al., Self-Adjust Softmax, arXiv 2502.18277 (HKUDS/SepLLM@f250f59, where masked scores count as 0 in
low and high, which 0 is part of anyway, and eps = 1e-10 stands in the denominator twice). The row's sum is at most 1.
Input: any f32; -inf is masked, +inf takes all the weight; a finite score of -5000 or less that is 104 or more below the
row's greatest counts as masked and is no part of low.
Half of each score is taken, so that the differences cannot overflow.
Integers: none. Accumulator: f32, the sum of the exponentials, in [1, N].
Error: |p' - exact| <= (4e-7 + N * 2^-24) * p.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import softmax
from softq.methods._unnormalized import scores
from softq.methods._written import Function, WrittenSettings, small
from softq.rowprog import DType, Trace

_EPS = 2e-10


@dataclass(frozen=True)
class SelfAdjustOptions(FloatOptions):
    """What is added to the divisor."""

    unnamed: ClassVar = {"eps": _EPS}

    eps: float = option(_EPS, "what is added to the divisor", low=0.0, high=1.0)


def _trace(t: Trace, options: SelfAdjustOptions) -> Outputs:
    x, p = scores(t), softmax(t)
    half = x.only(x.row) * t.const(0.5, DType.F32)
    low, high = t.min(t.row_min(half), 0.0), t.max(t.row_max(half), 0.0)
    place = t.divide(half - low, (high - low) + t.const(options.eps / 2, DType.F32))
    return x.pair(p.exponentials * place, p.total)


def _written(f: Function) -> Iterable[WrittenSettings]:
    # Beside a score so small, eps shows.
    score = 1e-6
    place = f.of(score)[0, 0] * (1 + (f.length - 1) * math.exp(-score))
    yield {"eps": small(score / place - score)}


METHOD = Method(
    name="self-adjust",
    summary="The softmax times each score's place between the least and the greatest, for models trained with it.",
    source="Self-Adjust Softmax, Zheng et al., arXiv 2502.18277",
    options=SelfAdjustOptions,
    trace=_trace,
    written=_written,
)
