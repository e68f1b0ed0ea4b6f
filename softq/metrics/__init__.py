"""Metrics: one per file, found by listing this folder; `base/metric.py` says what one is and how one is added."""

from __future__ import annotations

from softq.errors import UsageError
from softq.metrics.base.interval import Interval, mean_interval, paired_ratio_interval
from softq.metrics.base.metric import Direction, Measured, Meter, Metric, NanCounts, PairedSamples, PerSample
from softq.registry import Folder

METRICS = Folder("softq.metrics", "METRIC", Metric, "softq.metrics", "metric")

__all__ = [
    "METRICS",
    "Direction",
    "Interval",
    "Measured",
    "Meter",
    "Metric",
    "NanCounts",
    "PairedSamples",
    "PerSample",
    "find_metric",
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
