"""Figures of merit: one per file, found by listing this folder; `base.kinds` says what one is and how to add one."""

from __future__ import annotations

from softq.metrics.base.evidence import Evidence
from softq.metrics.base.inference import change_interval, count_flips, value_interval
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
from softq.metrics.base.proportions import Flips
from softq.metrics.base.values import EXP_MEAN, MAXIMUM, MEAN, PROPORTION, ROOT_RATIO, Kind
from softq.registry import Folder

METRICS = Folder("softq.metrics", "METRIC", Metric, "softq.metrics", "metric", listed_by="softq metrics")

__all__ = [
    "EXP_MEAN",
    "MAXIMUM",
    "MEAN",
    "METRICS",
    "PROPORTION",
    "ROOT_RATIO",
    "AloneMetric",
    "CountedMeter",
    "Direction",
    "Evidence",
    "Flips",
    "Floats",
    "HeldMeter",
    "HeldMetric",
    "Interval",
    "Kind",
    "Measured",
    "Meter",
    "Metric",
    "NanCounts",
    "PairedMetric",
    "PairedSamples",
    "Part",
    "PerSample",
    "Tensors",
    "change_interval",
    "count_flips",
    "find_metric",
    "mean_interval",
    "paired_ratio_interval",
    "value_interval",
]


def find_metric(name: str) -> Metric:
    """Return the built-in metric of this name, or the user's own for `package.module:function`.

    Raises:
        UsageError: there is none; the message names those nearest to it.
    """
    if ":" in name:
        from softq.metrics.base.user import user_metric

        return user_metric(name)
    return METRICS.get(name)
