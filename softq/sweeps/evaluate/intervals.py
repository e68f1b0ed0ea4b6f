"""Values with their 95 % intervals: a metric of one model, and what it loses against the float model.

Proportions, means, and perplexity as the exponential of one, have the intervals of `softq.metrics.base.inference`. What
has no such form has the spread over 200 random halves of the samples, drawn without replacement: the value of half of
them lies as far from the value of all as that from the truth, to first order (the delete-d jackknife with d = n / 2,
whose factor (n - d) / d is 1: J. Shao & C. F. J. Wu, A general theory for jackknife variance estimation, Annals of
Statistics 17, 1989). No sample is drawn twice, as a bootstrap would, so metrics over pairs of samples keep their
meaning. Both models are scored on the same halves. A maximum has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from softq.data import Array
from softq.errors import SoftqError
from softq.metrics import (
    MAXIMUM,
    AloneMetric,
    CountedMeter,
    Floats,
    HeldMeter,
    Meter,
    PairedMetric,
    PerSample,
    change_interval,
    count_flips,
    value_interval,
)
from softq.sweeps.records import Estimate

Indices = npt.NDArray[np.int64]

HALVES = 200
_SEED = 0
_LEAST = 4


def estimate_reference(meter: Meter) -> Estimate:
    """Return the float model's value, after its last batch."""
    if isinstance(meter, HeldMeter):
        return estimate_from_parts(*_scores_of_reference(meter))
    assert isinstance(meter, CountedMeter), meter
    return value_of(meter.metric, meter.samples[0])


def estimate_candidate(meter: Meter) -> tuple[Estimate, Estimate]:
    """Return the candidate's value and its loss, after its last batch.

    A NaN where the float model has a number makes both NaN, as in `softq.metrics`.
    """
    if meter.broken:
        return Estimate(math.nan), Estimate(math.nan)
    if isinstance(meter, HeldMeter):
        (ours, our_parts), (theirs, parts) = _scores_of_reference(meter), _score_over_halves(meter, candidate=True)
        sign = 1.0 if meter.metric.direction == "lower" else -1.0
        paired = sign * (parts - our_parts) if len(parts) == len(our_parts) else np.zeros(0)
        return estimate_from_parts(theirs, parts), estimate_from_parts(sign * (theirs - ours) + 0.0, paired)
    assert isinstance(meter, CountedMeter), meter
    ours, theirs = meter.samples
    return value_of(meter.metric, theirs), loss_of(meter.metric, ours, theirs)


def _scores_of_reference(meter: HeldMeter) -> tuple[float, Floats]:
    if meter.reference_scores is None:
        meter.reference_scores = _score_over_halves(meter, candidate=False)
    return meter.reference_scores


def _score_over_halves(meter: HeldMeter, *, candidate: bool) -> tuple[float, Floats]:
    outputs, labels = meter.whole(candidate=candidate)
    count = len(next(iter(outputs.values())))

    def part(chosen: Indices) -> float:
        return meter.score(
            {name: array[chosen] for name, array in outputs.items()},
            {name: _label_of(array, chosen, count) for name, array in labels.items()},
        )

    return meter.score(outputs, labels), score_halves(count, part)


def _label_of(array: Array, chosen: Indices, count: int) -> Array:
    """Return the label of some samples; one of all pairs of samples is cut along both axes."""
    return array[np.ix_(chosen, chosen)] if array.shape[:2] == (count, count) else array[chosen]


def value_of(metric: PairedMetric | AloneMetric, samples: PerSample) -> Estimate:
    """Return one model's value over the samples, with its interval."""
    reduce = metric.kind.reduce
    value = reduce(samples)
    if metric.kind is MAXIMUM or not math.isfinite(value):
        return Estimate(value)
    interval = value_interval(metric.kind, metric.bounds, samples)
    if interval is not None:
        return Estimate(value, interval.low, interval.high)
    if metric.kind.change is not None:
        return Estimate(value)
    return estimate_from_parts(value, score_halves(len(samples.total), lambda chosen: reduce(_chosen(samples, chosen))))


def loss_of(metric: PairedMetric | AloneMetric, reference: PerSample, candidate: PerSample) -> Estimate:
    """Return how much worse the candidate is than the reference on the same samples, with the paired interval.

    For an exponential of a mean it is the ratio minus 1, else the difference. Of a metric that compares two outputs it
    is the value's distance from that of the reference compared with itself.
    """
    kind, sign = metric.kind, 1.0 if metric.direction == "lower" else -1.0
    ours, theirs = kind.reduce(reference), kind.reduce(candidate)
    flips = count_flips(kind, reference, candidate)
    if metric.paired:
        value = value_of(metric, candidate)
        loss = sign * (theirs - ours) + 0.0  # no -0
        if value.low is None or value.high is None or not math.isfinite(loss):
            return Estimate(loss)
        return Estimate(loss, *sorted(sign * (end - ours) + 0.0 for end in (value.low, value.high)), flips=flips)
    ratio = kind.change == "ratio"
    change = theirs - ours if not ratio else theirs / ours - 1 if ours else math.nan
    loss = sign * change + 0.0
    interval = change_interval(kind, metric.bounds, reference, candidate)
    if interval is None or not math.isfinite(loss):
        return Estimate(loss)
    return Estimate(loss, *sorted(sign * (end - ratio) + 0.0 for end in (interval.low, interval.high)), flips=flips)


def _chosen(samples: PerSample, chosen: Indices) -> PerSample:
    return PerSample(samples.total[chosen], samples.weight[chosen])


@cache
def draw_halves(count: int) -> tuple[Indices, ...]:
    """Return the same random halves of so many samples each time, each in the samples' order."""
    generator = np.random.default_rng(_SEED)
    return tuple(np.sort(generator.permutation(count)[: count // 2]) for _ in range(HALVES))


def score_halves(count: int, value: Callable[[Indices], float]) -> Floats:
    """Return the value of each half; empty where there are too few samples, or a half has no value."""
    if count < _LEAST:
        return np.zeros(0)
    try:
        return np.array([value(chosen) for chosen in draw_halves(count)])
    except SoftqError:  # a metric may refuse so few samples; the value of all of them stands without an interval
        return np.zeros(0)


def estimate_from_parts(value: float, parts: Sequence[float] | Floats) -> Estimate:
    """Return the value with the 2.5 % and 97.5 % quantiles of its values on halves as the interval."""
    values = np.asarray(parts, np.float64)
    if not len(values) or not np.isfinite(values).all() or not math.isfinite(value):
        return Estimate(value)
    low, high = np.quantile(values, [0.025, 0.975])
    return Estimate(value, float(low), float(high))
