"""Figures of merit: one per file, found by listing this folder; `base.kinds` says what one is and how to add one."""

from __future__ import annotations

from softq.errors import UsageError
from softq.metrics.base.interval import Interval, mean_interval, paired_ratio_interval
from softq.metrics.base.kinds import AloneMetric, CountedMeter, HeldMeter, HeldMetric, Metric, PairedMetric
from softq.metrics.base.meter import (
    Direction,
    Floats,
    Measured,
    Meter,
    NanCounts,
    PairedSamples,
    Part,
    PerSample,
    Tensors,
)
from softq.metrics.base.reductions import exp_mean, maximum, mean
from softq.registry import Folder

METRICS = Folder("softq.metrics", "METRIC", Metric, "softq.metrics", "metric")

__all__ = [
    "METRICS",
    "AloneMetric",
    "CountedMeter",
    "Direction",
    "Floats",
    "HeldMeter",
    "HeldMetric",
    "Interval",
    "Measured",
    "Meter",
    "Metric",
    "NanCounts",
    "PairedMetric",
    "PairedSamples",
    "Part",
    "PerSample",
    "Tensors",
    "exp_mean",
    "find_metric",
    "maximum",
    "mean",
    "mean_interval",
    "paired_ratio_interval",
]


def find_metric(name: str) -> Metric:
    """Return the built-in metric of this name, or the user's own for `package.module:function`.

    Raises:
        UsageError: there is none; the message lists what there is.
    """
    if ":" in name:
        from softq.metrics.base.user import user_metric

        return user_metric(name)
    entries = METRICS.entries()
    if name not in entries:
        raise UsageError(f"unknown metric {name!r}; there are: {', '.join(entries)}, and package.module:function")
    return entries[name]
