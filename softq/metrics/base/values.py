"""What a value is, by which its interval is chosen: each metric declares one of these kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softq.metrics.base.meter import IntervalOf, PerSample
from softq.metrics.base.reductions import exp_mean, maximum, mean, root_ratio


@dataclass(frozen=True)
class Kind:
    """How samples make a value.

    Attributes:
        name: What users read.
        reduce: From what the samples add to the value.
        change: What is said of two models: the difference of their values, their ratio, or nothing.
    """

    name: str
    reduce: Callable[[PerSample], float]
    change: IntervalOf | None


PROPORTION = Kind("proportion", mean, "difference")
"""A share of rows, each of which is right or wrong."""
MEAN = Kind("mean", mean, "difference")
EXP_MEAN = Kind("exponential of a mean", exp_mean, "ratio")
ROOT_RATIO = Kind("root of a ratio of sums", root_ratio, None)
MAXIMUM = Kind("maximum", maximum, None)
"""Without an interval: a sample says nothing of the largest of others."""
