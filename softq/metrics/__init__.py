"""Figures of merit: one per file, found by listing this folder; `base.kinds` says what one is and how to add one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from inspect import signature

from softq.errors import UsageError
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

    Some have options: `name,key=number[,key=number...]`.

    Raises:
        UsageError: there is none: the message names those nearest to it; or an option is unknown or no whole number, or
            the metric needs a package that is not installed.
    """
    if ":" in name:
        from softq.metrics.base.user import user_metric

        return user_metric(name)
    name, *pairs = name.split(",")
    metric = METRICS.open(name)
    if metric.needs is not None and find_spec(metric.needs[0]) is None:
        raise UsageError(f"metric {name} needs {metric.needs[0]}: pip install 'softq[{metric.needs[1]}]'")
    return _with_options(metric, pairs) if pairs else metric


def _with_options(metric: Metric, pairs: Sequence[str]) -> Metric:
    known = {} if metric.make is None else signature(metric.make).parameters
    given: dict[str, int] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if metric.make is None or key not in known or key in given or re.fullmatch(r"-?\d{1,9}", value) is None:
            there = ", ".join(f"{one}={parameter.default}" for one, parameter in known.items()) or "none"
            raise UsageError(f"metric {metric.name}: {pair!r} is no option; there are, with their defaults: {there}")
        given[key] = int(value)
    assert metric.make is not None
    return replace(metric.make(**given), name=",".join([metric.name, *pairs]))
