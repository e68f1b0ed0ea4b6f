"""What a metric is: a frozen description that starts a meter, which takes batches of outputs and gives numbers.

To add a metric, put a file into this folder that exposes `METRIC`, named as the file is (`top1_accuracy.py` holds
`top1-accuracy`). Three classes serve:

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
from collections.abc import Callable, Mapping
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


# Reductions: from the samples' totals and weights to a value.


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


# The three kinds.


@dataclass(frozen=True)
class PairedMetric(Metric):
    """A metric that compares two outputs: `contribute(reference, candidate)` gives a total and a weight a sample."""

    contribute: Callable[[Array, Array], PerSample]
    reduce: Callable[[PerSample], float] = mean

    @property
    def paired(self) -> bool:
        """True."""
        return True

    @property
    def interval_of(self) -> IntervalOf | None:
        """The value, if it is a mean."""
        return "value" if self.reduce is mean else None

    def start(self, output: str, label: str | None) -> Meter:
        """Return an empty meter for the output of this name."""
        return _PairedMeter(self, output)


class _PairedMeter(Meter):
    def __init__(self, metric: PairedMetric, output: str) -> None:
        super().__init__()
        self._metric, self._output = metric, output
        self._samples: list[PerSample] = []

    def outputs(self, there: Tensors) -> list[str]:
        return [self._output]

    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        self._samples.append(self._metric.contribute(reference[self._output], candidate[self._output]))

    def _measure(self, nan: NanCounts) -> Measured:
        samples = _joined(self._samples)
        value = self._metric.reduce(samples)
        return Measured(None, value, nan, PairedSamples(None, samples.total, samples.weight))


@dataclass(frozen=True)
class AloneMetric(Metric):
    """A metric of one model: `contribute(output, labels)` gives a total a sample, and a weight that labels decide."""

    contribute: Callable[[Array, Array], PerSample]
    reduce: Callable[[PerSample], float] = mean

    @property
    def interval_of(self) -> IntervalOf | None:
        """The ratio of the values for exp(mean), their difference for a mean."""
        return "difference" if self.reduce is mean else "ratio" if self.reduce is exp_mean else None

    def start(self, output: str, label: str | None) -> Meter:
        """Return an empty meter for the output and the label of these names."""
        if label is None:
            raise InputError(f"metric {self.name} needs labels")
        return _AloneMeter(self, output, label)


class _AloneMeter(Meter):
    def __init__(self, metric: AloneMetric, output: str, label: str) -> None:
        super().__init__()
        self._metric, self._output, self._label = metric, output, label
        self._reference: list[PerSample] = []
        self._candidate: list[PerSample] = []

    def outputs(self, there: Tensors) -> list[str]:
        return [self._output]

    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        contribute = self._metric.contribute
        self._reference.append(contribute(reference[self._output], labels[self._label]))
        self._candidate.append(contribute(candidate[self._output], labels[self._label]))

    def _measure(self, nan: NanCounts) -> Measured:
        ours, theirs = _joined(self._reference), _joined(self._candidate)
        samples = PairedSamples(ours.total, theirs.total, ours.weight)
        return Measured(self._metric.reduce(ours), self._metric.reduce(theirs), nan, samples)


@dataclass(frozen=True)
class HeldMetric(Metric):
    """A metric that needs all samples at once: `score(outputs, labels, output, label)` is one model's value."""

    score: Callable[[Tensors, Tensors, str, str | None], float]
    all_outputs: bool = False

    def start(self, output: str, label: str | None) -> Meter:
        """Return an empty meter; it sees the output of this name, or all of them if `all_outputs`."""
        if label is None and self.needs_labels:
            raise InputError(f"metric {self.name} needs labels")
        return _HeldMeter(self, output, label)


class _HeldMeter(Meter):
    def __init__(self, metric: HeldMetric, output: str, label: str | None) -> None:
        super().__init__()
        self._metric, self._output, self._label = metric, output, label
        self._reference: dict[str, list[Array]] = {}
        self._candidate: dict[str, list[Array]] = {}
        self._labels: dict[str, list[Array]] = {}

    def outputs(self, there: Tensors) -> list[str]:
        return list(there) if self._metric.all_outputs else [self._output]

    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        for name in self.outputs(reference):
            self._reference.setdefault(name, []).append(reference[name])
            self._candidate.setdefault(name, []).append(candidate[name])
        for name, array in labels.items():
            self._labels.setdefault(name, []).append(array)

    def _measure(self, nan: NanCounts) -> Measured:
        labels = {name: self._join(name, arrays) for name, arrays in self._labels.items()}
        values = [
            self._metric.score(
                {name: self._join(name, arrays) for name, arrays in outputs.items()}, labels, self._output, self._label
            )
            for outputs in (self._reference, self._candidate)
        ]
        return Measured(values[0], values[1], nan, None)

    def _join(self, name: str, arrays: list[Array]) -> Array:
        try:
            return np.concatenate(arrays)
        except ValueError as error:
            shapes = sorted({array.shape[1:] for array in arrays})
            raise InputError(
                f"metric {self._metric.name} needs samples of one shape; {name!r} has {', '.join(map(str, shapes))}"
            ) from error


def _joined(samples: list[PerSample]) -> PerSample:
    if not samples:
        return PerSample(np.zeros(0), np.zeros(0))
    return PerSample(np.concatenate([s.total for s in samples]), np.concatenate([s.weight for s in samples]))
