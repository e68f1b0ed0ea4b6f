"""The three kinds of metrics, and the meter that each starts; `metric` says which one serves what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.metric import IntervalOf, Measured, Meter, Metric, NanCounts, PairedSamples, PerSample, Tensors
from softq.metrics.base.reductions import exp_mean, mean


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
        """Return the names of the outputs that the metric reads."""
        return [self._output]

    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        self._samples.append(self._metric.contribute(reference[self._output], candidate[self._output]))

    def _measure(self, nan: NanCounts) -> Measured:
        samples = joined(self._samples)
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
        """Return the names of the outputs that the metric reads."""
        return [self._output]

    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        contribute = self._metric.contribute
        self._reference.append(contribute(reference[self._output], labels[self._label]))
        self._candidate.append(contribute(candidate[self._output], labels[self._label]))

    def _measure(self, nan: NanCounts) -> Measured:
        ours, theirs = joined(self._reference), joined(self._candidate)
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
        return HeldMeter(self, output, label)


class HeldMeter(Meter):
    """The meter of a `HeldMetric`."""

    def __init__(self, metric: HeldMetric, output: str, label: str | None) -> None:
        super().__init__()
        self._metric, self._output, self._label = metric, output, label
        self._reference: dict[str, list[Array]] = {}
        self._candidate: dict[str, list[Array]] = {}
        self._labels: dict[str, list[Array]] = {}

    def outputs(self, there: Tensors) -> list[str]:
        """Return the names of the outputs that the metric reads."""
        return list(there) if self._metric.all_outputs else [self._output]

    def _add(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        for name in self.outputs(reference):
            self._reference.setdefault(name, []).append(reference[name])
            self._candidate.setdefault(name, []).append(candidate[name])
        for name, array in labels.items():
            self._labels.setdefault(name, []).append(array)

    def _measure(self, nan: NanCounts) -> Measured:
        labels = {name: self.join(name, arrays) for name, arrays in self._labels.items()}
        values = [
            self._metric.score(
                {name: self.join(name, arrays) for name, arrays in outputs.items()}, labels, self._output, self._label
            )
            for outputs in (self._reference, self._candidate)
        ]
        return Measured(values[0], values[1], nan, None)

    def join(self, name: str, arrays: list[Array]) -> Array:
        """Return the samples of all batches; the message names what has several shapes."""
        try:
            return np.concatenate(arrays)
        except ValueError as error:
            shapes = sorted({array.shape[1:] for array in arrays})
            raise InputError(
                f"metric {self._metric.name} needs samples of one shape; {name!r} has {', '.join(map(str, shapes))}"
            ) from error


def joined(samples: list[PerSample]) -> PerSample:
    """Return what batches added as one array each, in their order."""
    if not samples:
        return PerSample(np.zeros(0), np.zeros(0))
    return PerSample(np.concatenate([s.total for s in samples]), np.concatenate([s.weight for s in samples]))
