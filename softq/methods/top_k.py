"""The softmax over the k greatest scores of the row, 0 elsewhere.

Source: sparse softmax, k of the order of 10 (Sun et al., Sparse-softmax, arXiv 2112.12433; explicit sparse transformer,
Zhao et al., arXiv 1912.11637). With k large it comes near the softmax even in models that were not trained with it.
Nothing is sorted: with d = max - x the least threshold is sought, by 24 bisections of [0, 128], up to which k elements
reach, and all up to there are kept. So elements that tie with the k-th are all kept, and those less than 2^-17 beyond
it may be: more than k then. It is meant that their order in the row decides nothing.
Input: any f32; -inf is masked, +inf takes all the weight. Elements 86.5 or more below the greatest weigh 0 always.
Integers: none. Accumulator: f32, S in [1, N], and counts, exact up to 2^24.
Error: that of the exact softmax, over the elements that are kept.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from softq.methods._contract import Method, Options, OptionValue, option
from softq.methods._threshold import bisect
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import distance, exp_minus


@dataclass(frozen=True)
class TopKOptions(Options):
    """How many elements are kept."""

    k: OptionValue = option(
        32, "elements that are kept, the greatest; more where some tie with the last", low=1, high=65536
    )


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, TopKOptions)
    d = distance(t)
    row = t.max(d.row, 0.0)

    def kept(threshold: Value) -> Value:
        return t.select(row <= threshold, t.const(1.0, DType.F32), 0.0)

    last = bisect(t, lambda s: t.row_sum(kept(s)) >= float(int(options.k)), 128.0, 24)
    weights = t.select(row <= last, exp_minus(t, row), 0.0)
    return {"weights": weights, "normalizer": t.select(d.is_nan, math.nan, t.row_sum(weights))}


METHOD = Method(
    name="top-k",
    summary="The softmax of the k greatest scores, 0 elsewhere, for models trained with it.",
    source="Sparse-softmax, Sun et al., arXiv 2112.12433",
    options=TopKOptions,
    trace=_trace,
    integer_scores=False,
    drop_in=False,
    calibration="none",
    contract=True,
)
