"""The softmax over the k greatest scores of the row, 0 elsewhere.

Source: sparse softmax, k of the order of 10 (Sun et al., Sparse-softmax, arXiv 2112.12433; explicit sparse transformer,
Zhao et al., arXiv 1912.11637). With k large it comes near the softmax even in models that were not trained with it.
Nothing is sorted: with d = max - x the least threshold is sought, by 24 bisections of [0, 128], up to which k elements
reach, and all up to there are kept. So elements that tie with the k-th are all kept, and those less than 2^-17 beyond
it may be: more than k then. It is meant that their order in the row decides nothing.
ties=all and ties=first are what graphs have that hold the function itself: the k-th score to the bit, found by 48
bisections between the greatest score and 128 less, which is exact where the k-th is at least 2^-18 in size (below, what
is less than 2^-41 away ties with it). all keeps what ties with it, as a comparison with the least of TopK does; first
keeps k, of those that tie the first ones, as scattering the values of ONNX's TopK does: the order of the row matters.
Input: any f32; -inf is masked, +inf takes all the weight. Elements 86.5 or more below the greatest weigh 0 always.
Integers: none. Accumulator: f32, S in [1, N], and counts, exact up to 2^24.
Error: that of the exact softmax, over the elements that are kept.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from softq.methods import Method, Outputs, option
from softq.methods._bisection import bisect, greatest_with
from softq.methods._roundings import FloatOptions
from softq.methods._written import Function, WrittenSettings
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import distance, exp_minus, mask_scores

_REACH = 128.0
"""Elements farther below the greatest weigh 0 whatever is kept."""

_LONGEST = 2.0**24
"""Up to here counts and positions are whole f32 numbers."""


@dataclass(frozen=True)
class TopKOptions(FloatOptions):
    """How many elements are kept."""

    unnamed: ClassVar = {"ties": "near"}

    k: int = option(32, "elements that are kept, the greatest; more where some tie with the last", low=1, high=65536)
    ties: Literal["near", "all", "first"] = option(
        "near", "what is kept besides k elements; near: all within 2^-17 of the k-th; all: those equal to it; first: "
        "nothing, of equal ones the first are kept",
    )  # fmt: skip


def _trace(t: Trace, options: TopKOptions) -> Outputs:
    d = distance(t)
    row = t.max(d.row, 0.0)
    kept = _near(t, row, options.k) if options.ties == "near" else _exact(t, options)
    return d.pair(t.select(kept, exp_minus(t, row), 0.0))


def _near(t: Trace, row: Value, k: int) -> Value:
    return row <= bisect(t, lambda s: _count(t, row <= s) >= float(k), _REACH, 24)


def _count(t: Trace, which: Value) -> Value:
    return t.row_sum(t.select(which, t.const(1.0, DType.F32), 0.0))


def _exact(t: Trace, options: TopKOptions) -> Value:
    x, _ = mask_scores(t)
    k = float(options.k)
    threshold = greatest_with(t, lambda s: _count(t, x >= s) >= k, x, _REACH)
    if options.ties == "all":
        return x >= threshold
    # The least that is kept: without it in reach of all bits a threshold may lie a little below.
    last = t.row_min(t.select(x >= threshold, x, math.inf))
    place, missing = t.cast(t.index(), DType.F32), k - _count(t, x > last)
    end = bisect(t, lambda s: _count(t, x.eq(last) & (place < s)) >= missing, _LONGEST, 24)
    return (x > last) | (x.eq(last) & (place < end))


def _written(f: Function) -> Iterable[WrittenSettings]:
    falling = np.linspace(0.0, -40.0, f.length)[None]
    k = int(np.count_nonzero(f.evaluate(falling)[0, 0]))
    if 0 < k < f.length:
        yield from ({"k": k, "ties": ties} for ties in ("all", "first"))


METHOD = Method(
    name="top-k",
    summary="The softmax of the k greatest scores, 0 elsewhere, for models trained with it.",
    source="Sparse-softmax, Sun et al., arXiv 2112.12433",
    options=TopKOptions,
    trace=_trace,
    written=_written,
    contract=True,
)
