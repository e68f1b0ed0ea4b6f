"""One metric of many candidates against a float model that runs once: what is kept of it depends on the metric's kind.

Of a model that is scored by itself two numbers a sample are kept. A paired metric needs the float model's outputs
again for each candidate; they lie on the disk. What needs all samples at once is in memory, as `HeldMetric` says.
A NaN where the float model has a number makes the candidate's value NaN, as in `softq.metrics`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from softq.data import Array
from softq.errors import InputError
from softq.metrics import Metric, PerSample
from softq.metrics._metric import AloneMetric, Floats, HeldMetric, PairedMetric, Tensors, _HeldMeter, exp_mean, is_nan
from softq.metrics._metric import _joined as joined
from softq.sweep.estimates import Indices, loss_of, over_halves, spread, value_of
from softq.sweep.records import Estimate


class Comparison(ABC):
    """Takes the float model's batches once, then those of each candidate between `begin` and `result`."""

    def __init__(self, output: str, label: str | None) -> None:
        self._output, self._label = output, label
        self._broken = False

    @abstractmethod
    def reference(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        """Take the float model's outputs for the batch of this number."""

    @abstractmethod
    def reference_value(self) -> Estimate:
        """Return the float model's value, after its last batch."""

    def begin(self) -> None:
        """Forget the candidate before."""
        self._broken = False

    @abstractmethod
    def candidate(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        """Take a candidate's outputs for the batch of this number."""

    def result(self) -> tuple[Estimate, Estimate]:
        """Return the candidate's value and its loss, after its last batch."""
        nothing = Estimate(math.nan)
        return (nothing, nothing) if self._broken else self._result()

    @abstractmethod
    def _result(self) -> tuple[Estimate, Estimate]: ...

    def _check(self, name: str, reference: tuple[int, ...], nan: npt.NDArray[np.bool_], output: Array) -> None:
        if output.shape != reference:
            raise InputError(
                f"output {name!r}: the reference gives shape {list(reference)}, the candidate {list(output.shape)}"
            )
        self._broken = self._broken or bool((is_nan(output) & ~nan).any())


def comparison(metric: Metric, output: str, label: str | None, folder: Path) -> Comparison:
    """Return an empty comparison by a metric.

    Args:
        metric: The metric.
        output: The output that it looks at.
        label: Its label.
        folder: Where outputs that must be kept can lie.
    """
    if isinstance(metric, AloneMetric):
        return _Alone(metric, output, label)
    if isinstance(metric, PairedMetric):
        return _Paired(metric, output, folder)
    assert isinstance(metric, HeldMetric), metric
    return _Held(metric, output, label)


def shares(metric: Metric) -> bool:
    """Return whether losses of a metric are shares of the float value (ratio minus 1) instead of differences."""
    return isinstance(metric, AloneMetric) and metric.reduce is exp_mean


class _Alone(Comparison):
    def __init__(self, metric: AloneMetric, output: str, label: str | None) -> None:
        super().__init__(output, label)
        self._metric = metric
        self._shapes: list[tuple[int, ...]] = []
        self._nan: dict[int, npt.NDArray[np.uint8]] = {}
        self._ours: list[PerSample] = []
        self._theirs: list[PerSample] = []

    def _contribution(self, outputs: Tensors, labels: Tensors) -> PerSample:
        return self._metric.contribute(outputs[self._output], labels[str(self._label)])

    def reference(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        nan = is_nan(outputs[self._output])
        if nan.any():
            self._nan[number] = np.packbits(nan)
        self._shapes.append(nan.shape)
        self._ours.append(self._contribution(outputs, labels))

    def reference_value(self) -> Estimate:
        return value_of(self._metric.reduce, joined(self._ours))

    def begin(self) -> None:
        super().begin()
        self._theirs = []

    def candidate(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        shape = self._shapes[number]
        nan = np.zeros(shape, np.bool_)
        if number in self._nan:
            nan = np.unpackbits(self._nan[number], count=math.prod(shape)).astype(np.bool_).reshape(shape)
        self._check(self._output, shape, nan, outputs[self._output])
        self._theirs.append(self._contribution(outputs, labels))

    def _result(self) -> tuple[Estimate, Estimate]:
        ours, theirs, metric = joined(self._ours), joined(self._theirs), self._metric
        return value_of(metric.reduce, theirs), loss_of(metric.reduce, metric.direction, ours, theirs)


class _Paired(Comparison):
    """The float model's own value is that of the comparison with itself."""

    def __init__(self, metric: PairedMetric, output: str, folder: Path) -> None:
        super().__init__(output, None)
        self._metric, self._folder = metric, folder
        self._ours: list[PerSample] = []
        self._theirs: list[PerSample] = []

    def reference(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        output = outputs[self._output]
        np.save(self._folder / f"{number}.npy", output, allow_pickle=False)
        self._ours.append(self._metric.contribute(output, output))

    def reference_value(self) -> Estimate:
        return value_of(self._metric.reduce, joined(self._ours))

    def begin(self) -> None:
        super().begin()
        self._theirs = []

    def candidate(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        ours: Array = np.load(self._folder / f"{number}.npy", allow_pickle=False)
        self._check(self._output, ours.shape, is_nan(ours), outputs[self._output])
        self._theirs.append(self._metric.contribute(ours, outputs[self._output]))

    def _result(self) -> tuple[Estimate, Estimate]:
        ours, theirs, metric = joined(self._ours), joined(self._theirs), self._metric
        return value_of(metric.reduce, theirs), loss_of(metric.reduce, metric.direction, ours, theirs)


class _Held(Comparison):
    def __init__(self, metric: HeldMetric, output: str, label: str | None) -> None:
        super().__init__(output, label)
        self._metric = metric
        self._ours: dict[str, list[Array]] = {}
        self._theirs: dict[str, list[Array]] = {}
        self._labels: dict[str, list[Array]] = {}
        self._reference: tuple[float, Floats] | None = None

    def _names(self, outputs: Tensors) -> list[str]:
        return list(outputs) if self._metric.all_outputs else [self._output]

    def reference(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        for name in self._names(outputs):
            self._ours.setdefault(name, []).append(outputs[name])
        for name, array in labels.items():
            self._labels.setdefault(name, []).append(array)

    def reference_value(self) -> Estimate:
        value, parts = self._own()
        return spread(value, parts)

    def _own(self) -> tuple[float, Floats]:
        if self._reference is None:
            self._reference = self._scores(self._ours)
        return self._reference

    def begin(self) -> None:
        super().begin()
        self._theirs = {}

    def candidate(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        for name in self._names(outputs):
            ours = self._ours[name][number]
            self._check(name, ours.shape, is_nan(ours), outputs[name])
            self._theirs.setdefault(name, []).append(outputs[name])

    def _scores(self, outputs: dict[str, list[Array]]) -> tuple[float, Floats]:
        metric, meter = self._metric, _HeldMeter(self._metric, self._output, self._label)
        whole = {name: meter._join(name, arrays) for name, arrays in outputs.items()}
        labels = {name: meter._join(name, arrays) for name, arrays in self._labels.items()}
        count = len(next(iter(whole.values())))

        def part(chosen: Indices) -> float:
            return metric.score(
                {name: array[chosen] for name, array in whole.items()},
                {name: _label_of(array, chosen, count) for name, array in labels.items()},
                self._output,
                self._label,
            )

        return metric.score(whole, labels, self._output, self._label), over_halves(count, part)

    def _result(self) -> tuple[Estimate, Estimate]:
        (ours, our_parts), (theirs, parts) = self._own(), self._scores(self._theirs)
        sign = 1.0 if self._metric.direction == "lower" else -1.0
        paired = sign * (parts - our_parts) if len(parts) == len(our_parts) else np.zeros(0)
        return spread(theirs, parts), spread(sign * (theirs - ours) + 0.0, paired)


def _label_of(array: Array, chosen: Indices, count: int) -> Array:
    """Return the label of some samples; one of all pairs of samples is cut along both axes."""
    return array[np.ix_(chosen, chosen)] if array.shape[:2] == (count, count) else array[chosen]
