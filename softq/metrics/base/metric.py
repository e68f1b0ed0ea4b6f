"""What a metric is: a frozen description that starts a meter, which takes batches of outputs and gives numbers.

To add a metric, put a file into this folder that exposes `METRIC`, named as the file is (`top1_accuracy.py` holds
`top1-accuracy`). Three classes in `kinds` serve:

* `PairedMetric` compares the candidate's output with the reference's and has one value;
* `AloneMetric` scores each model by itself, against labels as a rule, and has a value for each model;
* `HeldMetric` also scores each model by itself, but needs the outputs of all samples at once. It keeps them in memory.

The first two give, for each sample, a total and a weight, and reduce all of these to one number; so thousands of
samples cost two numbers each, and intervals over samples come for free.

NaN: one in the candidate where the reference has a number makes the candidate's value NaN, whatever the metric, and no
gate passes a NaN. Where the reference is NaN there is nothing to compare with: paired metrics leave that element (or
row) out, and the report counts it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from softq.data import Array
from softq.errors import InputError

Direction = Literal["higher", "lower"]
IntervalOf = Literal["difference", "ratio", "value"]
Floats: TypeAlias = npt.NDArray[np.float64]
Tensors: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class PerSample:
    """What each sample adds to a metric: a total, such as a sum of NLL, and its weight, such as a count of tokens."""

    total: Floats
    weight: Floats


@dataclass(frozen=True)
class PairedSamples:
    """The samples' totals under both models (a paired metric has no reference's total) and their common weights."""

    reference: Floats | None
    candidate: Floats
    weight: Floats


@dataclass(frozen=True)
class NanCounts:
    """Elements of the outputs that are NaN: in each model, in both at the same place, and in the candidate alone."""

    reference: int = 0
    candidate: int = 0
    both: int = 0
    candidate_only: int = 0

    def __add__(self, other: NanCounts) -> NanCounts:
        return NanCounts(
            self.reference + other.reference,
            self.candidate + other.candidate,
            self.both + other.both,
            self.candidate_only + other.candidate_only,
        )


@dataclass(frozen=True)
class Measured:
    """The result of a meter.

    Attributes:
        reference: The reference's value; None for a paired metric.
        candidate: The candidate's value, or the value of the comparison.
        nan: NaN counts of the outputs that the metric saw.
        samples: What each sample added, or None where that has no meaning.
    """

    reference: float | None
    candidate: float
    nan: NanCounts
    samples: PairedSamples | None


@dataclass(frozen=True)
class Metric(ABC):
    """A figure of merit.

    Attributes:
        name: The name that users type.
        direction: Whether a higher or a lower value is better.
        unit: What the value counts.
        summary: One line on what it says.
        needs_labels: Whether it needs a label.
        distance: The paired metric that shows how far an output moved long before this one does; its mean grows as the
            square of a small error.
    """

    name: str
    direction: Direction
    unit: str
    summary: str
    needs_labels: bool
    distance: str = field(default="relative-error", kw_only=True)

    @property
    def paired(self) -> bool:
        """Whether the one value compares the candidate with the reference."""
        return False

    @property
    def interval_of(self) -> IntervalOf | None:
        """What a confidence interval over the samples is about, or None if there is none."""
        return None

    @abstractmethod
    def start(self, output: str, label: str | None) -> Meter:
        """Return an empty meter for the output and the label of these names."""


class Meter(ABC):
    """Takes the outputs of both models batch by batch."""

    def __init__(self) -> None:
        self._nan = NanCounts()

    def update(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        """Take one batch: the outputs of both models for the same samples, and the labels, by name.

        Raises:
            InputError: shapes or labels make no sense for this metric.
        """
        for name in self.outputs(reference):
            if reference[name].shape != candidate[name].shape:
                raise InputError(
                    f"output {name!r}: the reference gives shape {list(reference[name].shape)},"
                    f" the candidate {list(candidate[name].shape)}"
                )
            self._nan += count_nans(reference[name], candidate[name])
        self._add(reference, candidate, labels)

    def result(self) -> Measured:
        """Return the values over all batches so far."""
        measured = self._measure(self._nan)
        return replace(measured, candidate=math.nan) if self._nan.candidate_only else measured

    @abstractmethod
    def outputs(self, there: Tensors) -> list[str]:
        """Return the names of the outputs that the metric looks at."""

    @abstractmethod
    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None: ...

    @abstractmethod
    def _measure(self, nan: NanCounts) -> Measured: ...


def count_nans(reference: Array, candidate: Array) -> NanCounts:
    """Return where two arrays of one shape are NaN; integers never are."""
    left, right = is_nan(reference), is_nan(candidate)
    return NanCounts(int(left.sum()), int(right.sum()), int((left & right).sum()), int((right & ~left).sum()))


def is_nan(array: Array) -> npt.NDArray[np.bool_]:
    """Return the mask of the NaNs of an array of any type."""
    if array.dtype.kind in "fc":
        return np.isnan(cast("Floats", array))
    return np.zeros(array.shape, np.bool_)
