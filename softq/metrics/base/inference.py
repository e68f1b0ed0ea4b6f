"""Which interval a value has, by its kind; every interval of a value or of a change comes from here.

A proportion whose samples are one row each has the score intervals of `proportions`. Where a sample is many rows (the
tokens of a window), rows of one sample are not independent: one model's proportion has Wilson's interval for as many
rows as have the variance between the samples (E. L. Korn & B. I. Graubard, Survey Methodology 24, 1998), and two models
have the interval of a mean. Where the samples do not vary at all each counts as one row, so that nothing is a point.

A mean has Student's interval (`interval`), and where that leaves the range of the values, so that a normal
distribution is no fit, the bootstrap's.
"""

from __future__ import annotations

import math

import numpy as np

from softq.metrics.base.interval import (
    Interval,
    exponential,
    mean_interval,
    paired_ratio_interval,
    ratio_estimate,
    student_quantile,
)
from softq.metrics.base.meter import Floats, PerSample
from softq.metrics.base.proportions import Flips, Z, tango_ends, wilson_ends
from softq.metrics.base.values import EXP_MEAN, MEAN, PROPORTION, Kind

Range = tuple[float, float]


def value_interval(kind: Kind, bounds: Range, samples: PerSample) -> Interval | None:
    """Return the interval of one model's value; None where the kind has none or the samples are too few or infinite."""
    counted = _counted(kind, samples)
    if counted is None:
        return None
    total, weight = counted.total, counted.weight
    if kind is PROPORTION:
        return _proportion(total, weight)
    if kind is MEAN:
        return mean_interval(total, weight, bounds)
    low, high = (math.log(end) if end > 0 else -math.inf for end in bounds)
    return exponential(mean_interval(total, weight, (low, high)))


def change_interval(kind: Kind, bounds: Range, reference: PerSample, candidate: PerSample) -> Interval | None:
    """Return the paired interval of candidate minus reference, or of their ratio as the kind has it; None as above."""
    ours, theirs = _counted(kind, reference), _counted(kind, candidate)
    if ours is None or theirs is None:
        return None
    if kind is EXP_MEAN:
        return paired_ratio_interval(ours.total, theirs.total, ours.weight)
    change, weight, width = theirs.total - ours.total, ours.weight, bounds[1] - bounds[0]
    if kind is PROPORTION:
        flips = count_flips(kind, reference, candidate)
        count = len(weight)
        ratio = float(change.sum() / weight.sum())
        if flips is not None:
            return Interval(ratio, *tango_ends(flips.gained, flips.lost, count))
        if count < 2 or not np.any(change - ratio * weight):
            return Interval(ratio, *tango_ends(max(ratio, 0) * count, max(-ratio, 0) * count, count))
    return mean_interval(change, weight, (-width, width))


def count_flips(kind: Kind, reference: PerSample, candidate: PerSample) -> Flips | None:
    """Return the samples that flip; None unless each is one row that is right or wrong."""
    ours, theirs = _counted(kind, reference), _counted(kind, candidate)
    if kind is not PROPORTION or ours is None or theirs is None or not (_single(ours) and _single(theirs)):
        return None
    return Flips(int((ours.total > theirs.total).sum()), int((theirs.total > ours.total).sum()))


def _proportion(total: Floats, weight: Floats) -> Interval:
    share, count, rows = float(total.sum() / weight.sum()), len(total), float(weight.sum())
    if _single(PerSample(total, weight)):
        return Interval(share, *wilson_ends(float(total.sum()), rows))
    worth = float(count)
    if count > 1 and (variance := ratio_estimate(total, weight)[1] ** 2) > 0:
        # The quantile too is that of so few samples.
        worth = min(share * (1 - share) / variance * (Z / student_quantile(count - 1)) ** 2, rows)
    return Interval(share, *wilson_ends(share * worth, worth))


def _single(samples: PerSample) -> bool:
    return bool((samples.weight == 1).all() and np.isin(samples.total, (0.0, 1.0)).all())


def _counted(kind: Kind, samples: PerSample) -> PerSample | None:
    """Return the samples with weight, if there are enough of them and they are finite."""
    there = samples.weight > 0
    total, weight = samples.total[there], samples.weight[there]
    enough = len(total) >= (1 if kind is PROPORTION else 2)
    if kind not in (PROPORTION, MEAN, EXP_MEAN) or not enough or not np.isfinite(total).all():
        return None
    return PerSample(total, weight)
