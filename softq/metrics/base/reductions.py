"""Reductions: from the samples' totals and weights to one number, which is the value of a metric."""

from __future__ import annotations

import math

import numpy as np

from softq.metrics.base.meter import Floats, PerSample


def mean(samples: PerSample) -> float:
    """Return the sum of the totals over the sum of the weights; NaN without weight."""
    weight = _sum(samples.weight)
    return _sum(samples.total) / weight if weight else math.nan


def exp_mean(samples: PerSample) -> float:
    """Return exp(mean); infinity where that overflows."""
    try:
        return math.exp(mean(samples))
    except OverflowError:
        return math.inf


def root_ratio(samples: PerSample) -> float:
    """Return the root of the totals over the weights: NaN for 0/0 (nothing to differ from), infinity for x/0."""
    total, weight = _sum(samples.total), _sum(samples.weight)
    if weight == 0:
        return math.inf if total > 0 else math.nan
    return math.sqrt(total / weight)


def maximum(samples: PerSample) -> float:
    """Return the largest total among samples that have weight; NaN if one is NaN or none has weight."""
    counted = samples.total[samples.weight > 0]
    return float(counted.max()) if counted.size else math.nan


def _sum(values: Floats) -> float:
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf is a NaN, and that is the answer.
        return float(values.sum())
