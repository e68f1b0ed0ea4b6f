"""The softmax of scores that grow with the row's length: p = softmax(s * ln(n) * x).

Source: Nakanishi, Scalable-Softmax Is Superior for Attention, arXiv 2501.19399, equation of SSMax; s is learned there,
per head and layer (0.43 in its figure, the default here); a graph that holds the function may give one per head. n is
the number of elements that take part, at least 2: of one element the softmax is 1 anyway. A finite score of -5000 or
less that is 104 or more below the row's greatest counts as masked.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, S in [1, N].
Error: (5e-7 * s * ln(n) * d + 2e-7 + N * 2^-24) * p, d the distance from the greatest score.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from softq.methods import Method, Outputs, Scope, option
from softq.methods._fitted import itself, per_head, take_learned
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import scores
from softq.methods._written import Function, WrittenSettings, collapse
from softq.rowprog import DType, Trace
from softq.rowprog.library import distance, exp_minus


@dataclass(frozen=True)
class SsmaxOptions(FloatOptions):
    """The factor."""

    s: float | Scope = option(0.43, "factor on ln(n) * score", low=0.001, high=100.0)


def _trace(t: Trace, options: SsmaxOptions) -> Outputs:
    x, d = scores(t), distance(t)
    octaves = t.log2(t.max(x.count, 2.0))
    if isinstance(options.s, str):
        rate = octaves * t.const(math.log(2), DType.F32) * take_learned(t, options, "s")
    else:
        rate = octaves * t.const(float(options.s) * math.log(2), DType.F32)
    return d.pair(x.only(exp_minus(t, d.row * rate)))


def _written(f: Function) -> Iterable[WrittenSettings]:
    p = f.of(1.0)
    return ({"s": collapse(np.log(p[:, 0] / p[:, 1]) / math.log(f.length))},)


METHOD = Method(
    name="ssmax",
    summary="The softmax of scores times the logarithm of the row's length, for models trained with it.",
    source="Scalable-Softmax, Nakanishi, arXiv 2501.19399",
    options=SsmaxOptions,
    trace=_trace,
    parameters=per_head(s=itself("s")),
    written=_written,
    contract=True,
)
