"""What a metric is: a frozen description that starts a meter, which takes batches of outputs and gives numbers.

To add a metric, put a file into this folder that exposes `METRIC`, named as the file is (`top1_accuracy.py` holds
`top1-accuracy`). Three classes serve:

* `PairedMetric` compares the candidate's output with the reference's and has one value;
* `AloneMetric` scores each model by itself, against labels as a rule, and has a value for each model;
* `HeldMetric` also scores each model by itself, but needs the outputs of all samples at once. It keeps them in memory.

A metric that takes options, as in `cer,blank=79`, is made by a function of them, which it has as its `make`.

The first two give, for each sample, a total and a weight, and reduce all of these to one number; so thousands of
samples cost two numbers each, and intervals over samples come for free. Each declares its `kind` (`values.py`: a
proportion, a mean, ...) and the `bounds` of its values, by which its interval is chosen (`inference.py`).

NaN: one in the candidate where the reference has a number makes the candidate's value NaN, whatever the metric, and no
gate passes a NaN. Where the reference is NaN there is nothing to compare with: paired metrics leave that element (or
row) out, and the report counts it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.meter import (
    Direction,
    Floats,
    IntervalOf,
    Measured,
    Meter,
    NanCounts,
    PairedSamples,
    Part,
    PerSample,
    Tensors,
)
from softq.metrics.base.values import Kind


@dataclass(frozen=True)
class Metric(ABC):
    """A figure of merit.

    Attributes:
        name: The name that users type.
        direction: Whether a higher or a lower value is better.
        unit: What the value counts.
        summary: One line on what it says.
        needs_labels: Whether it needs a label.
        kind: What its value is, by which its intervals are chosen; None for a number of all samples together.
        bounds: The least and the greatest value that there is; no interval goes beyond.
        distance: The paired metric that shows how far an output moved long before this one does; its mean grows as the
            square of a small error.
        make: For a metric with options: makes it from them, whole numbers by name; its defaults are theirs.
        needs: A package that it needs, and the extra of softq that installs that.
    """

    name: str
    direction: Direction
    unit: str
    summary: str
    needs_labels: bool
    kind: Kind | None = field(kw_only=True)
    bounds: tuple[float, float] = field(kw_only=True)
    distance: str = field(default="relative-error", kw_only=True)
    make: Callable[..., Metric] | None = field(default=None, kw_only=True)
    needs: tuple[str, str] | None = field(default=None, kw_only=True)

    @property
    def best(self) -> float:
        """The best value that there is: of a paired metric that of a model compared with itself."""
        return self.bounds[1] if self.direction == "higher" else self.bounds[0]

    @property
    def paired(self) -> bool:
        """Whether the one value compares the candidate with the reference."""
        return False

    @property
    def interval_of(self) -> IntervalOf | None:
        """What a confidence interval over the samples is about, or None if there is none."""
        return None

    @abstractmethod
    def start(self, output: str, label: str | None, folder: Path | None = None) -> Meter:
        """Return an empty meter for the output and the label of these names; see `Meter` for the folder."""


@dataclass(frozen=True)
class PairedMetric(Metric):
    """A metric that compares two outputs: `contribute(reference, candidate)` gives a total and a weight per sample."""

    contribute: Callable[[Array, Array], PerSample]
    kind: Kind = field(kw_only=True)

    @property
    def paired(self) -> bool:
        """True."""
        return True

    @property
    def interval_of(self) -> IntervalOf | None:
        """The value, if it is a mean or a proportion."""
        return "value" if self.kind.change == "difference" else None

    def start(self, output: str, label: str | None, folder: Path | None = None) -> PairedMeter:
        """Return an empty meter for the output of this name."""
        return PairedMeter(self, output, folder)


@dataclass(frozen=True)
class AloneMetric(Metric):
    """A metric of one model: `contribute(output, labels)` gives a total per sample, and a weight that labels decide."""

    contribute: Callable[[Array, Array], PerSample]
    kind: Kind = field(kw_only=True)

    @property
    def interval_of(self) -> IntervalOf | None:
        """The ratio of the values for exp(mean), their difference for a mean."""
        return self.kind.change

    def start(self, output: str, label: str | None, folder: Path | None = None) -> AloneMeter:
        """Return an empty meter for the output and the label of these names."""
        if label is None:
            raise InputError(f"metric {self.name} needs labels")
        return AloneMeter(self, output, label, folder)


@dataclass(frozen=True)
class HeldMetric(Metric):
    """A metric that needs all samples at once: `score(outputs, labels, output, label)` is one model's value."""

    score: Callable[[Tensors, Tensors, str, str | None], float]
    all_outputs: bool = False

    def start(self, output: str, label: str | None, folder: Path | None = None) -> HeldMeter:
        """Return an empty meter; it sees the output of this name, or all of them if `all_outputs`."""
        if label is None and self.needs_labels:
            raise InputError(f"metric {self.name} needs labels")
        return HeldMeter(self, output, label, folder)


class CountedMeter(Meter):
    """A meter that adds up a total and a weight per sample."""

    metric: PairedMetric | AloneMetric

    @property
    def samples(self) -> tuple[PerSample, PerSample]:
        """What the samples add, of the reference (of a comparison with itself) and of the candidate."""
        return join_samples(self._ours), join_samples(self._theirs)


class PairedMeter(CountedMeter):
    """The meter of a `PairedMetric`. The reference's own value is that of the comparison with itself."""

    def __init__(self, metric: PairedMetric, output: str, folder: Path | None) -> None:
        super().__init__(output, None, folder)
        self.metric = self._metric = metric
        self._outputs: dict[int, Array | Path] = {}

    def _keep(self, number: int, outputs: Tensors) -> None:
        super()._keep(number, outputs)
        self._outputs[number] = self._store(number, "", outputs[self._output])

    def _own(self, outputs: Tensors, labels: Tensors) -> Part:
        return Part(self._metric.contribute(outputs[self._output], outputs[self._output]))

    def _beside(self, outputs: Tensors, labels: Tensors) -> list[Part]:
        return []

    def _against(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        return Part(self._metric.contribute(self._load(self._outputs[number]), outputs[self._output]))

    def _measure(self, nan: NanCounts) -> Measured:
        _, samples = self.samples
        return Measured(
            None, self._metric.kind.reduce(samples), nan, PairedSamples(None, samples.total, samples.weight)
        )


class AloneMeter(CountedMeter):
    """The meter of an `AloneMetric`."""

    def __init__(self, metric: AloneMetric, output: str, label: str, folder: Path | None) -> None:
        super().__init__(output, label, folder)
        self.metric = self._metric = metric

    def _own(self, outputs: Tensors, labels: Tensors) -> Part:
        return Part(self._metric.contribute(outputs[self._output], labels[str(self._label)]))

    def _against(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        return self._own(outputs, labels)

    def _measure(self, nan: NanCounts) -> Measured:
        ours, theirs = self.samples
        samples = PairedSamples(ours.total, theirs.total, ours.weight)
        return Measured(self._metric.kind.reduce(ours), self._metric.kind.reduce(theirs), nan, samples)


class HeldMeter(Meter):
    """The meter of a `HeldMetric`.

    Attributes:
        reference_scores: The reference's value over all samples and over parts of them, for who needs them again.
    """

    reference_scores: tuple[float, Floats] | None = None

    def __init__(self, metric: HeldMetric, output: str, label: str | None, folder: Path | None) -> None:
        super().__init__(output, label, folder)
        self.metric = metric

    def outputs(self, there: Tensors) -> list[str]:
        """Return the one that it sees, or all."""
        return list(there) if self.metric.all_outputs else [self._output]

    def _own(self, outputs: Tensors, labels: Tensors) -> Part:
        return Part(outputs={name: outputs[name] for name in self.outputs(outputs)}, labels=labels)

    def _against(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        return Part(outputs={name: outputs[name] for name in self.outputs(outputs)})

    def whole(self, *, candidate: bool) -> tuple[Tensors, Tensors]:
        """Return the outputs of one model over all samples, and the labels."""
        parts = self._theirs if candidate else self._ours
        outputs = {name: self._join(name, [part.outputs[name] for part in parts]) for name in parts[0].outputs}
        labels = {name: self._join(name, [part.labels[name] for part in self._ours]) for name in self._ours[0].labels}
        return outputs, labels

    def score(self, outputs: Tensors, labels: Tensors) -> float:
        """Return the metric's value of a model."""
        return self.metric.score(outputs, labels, self._output, self._label)

    def _measure(self, nan: NanCounts) -> Measured:
        ours, theirs = (self.score(*self.whole(candidate=which)) for which in (False, True))
        return Measured(ours, theirs, nan, None)

    def _join(self, name: str, arrays: list[Array]) -> Array:
        try:
            return np.concatenate(arrays)
        except ValueError as error:
            shapes = sorted({array.shape[1:] for array in arrays})
            raise InputError(
                f"metric {self.metric.name} needs samples of one shape; {name!r} has {', '.join(map(str, shapes))}"
            ) from error


def join_samples(parts: Sequence[Part]) -> PerSample:
    """Return what batches added as one array each, in their order."""
    counted = [part.counted for part in parts if part.counted is not None]
    if not counted:
        return PerSample(np.zeros(0), np.zeros(0))
    return PerSample(np.concatenate([s.total for s in counted]), np.concatenate([s.weight for s in counted]))
