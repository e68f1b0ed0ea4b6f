"""One metric of many candidates against a float model that runs once: what is kept of it depends on the metric's kind.

Of a model that is scored by itself two numbers a sample are kept. A paired metric needs the float model's outputs
again for each candidate; they lie on the disk. What needs all samples at once is in memory, as `HeldMetric` says.
A NaN where the float model has a number makes the candidate's value NaN, as in `softq.metrics`.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from softq.data import Array
from softq.errors import InputError
from softq.metrics import Metric, PerSample
from softq.metrics.base.kinds import AloneMetric, HeldMeter, HeldMetric, PairedMetric, joined
from softq.metrics.base.metric import Floats, Tensors, is_nan
from softq.metrics.base.reductions import exp_mean
from softq.sweeps.evaluate.intervals import Indices, loss_of, over_halves, spread, value_of
from softq.sweeps.records import Estimate


@dataclass(frozen=True)
class Part:
    """What one batch adds to a value; small, but for metrics that need whole outputs.

    Attributes:
        broken: Whether a candidate has a NaN where the float model has a number.
        counted: Totals and weights of the samples, for a metric that adds them up.
        outputs: The outputs by name, for a metric that needs all samples at once.
        labels: Their labels.
    """

    broken: bool = False
    counted: PerSample | None = None
    outputs: Tensors = field(default_factory=dict[str, Array])
    labels: Tensors = field(default_factory=dict[str, Array])


class Comparison(ABC):
    """Takes the float model's batches once, then those of each candidate between `begin` and `result`.

    `look` and `compare` turn a batch into a part, where the models run; `add_reference` and `add` take the parts of all
    batches in order, in another process if need be. So the sums and their order do not depend on where a batch was run.
    """

    def __init__(self, output: str, label: str | None, folder: Path) -> None:
        self._output, self._label, self._folder = output, label, folder
        self._facts: dict[tuple[int, str], tuple[tuple[int, ...], Path | None]] = {}
        self._ours: list[Part] = []
        self._theirs: list[Part] = []

    @abstractmethod
    def look(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        """Return what the float model's batch of this number adds; keep what candidates are compared with."""

    @abstractmethod
    def compare(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        """Return what a candidate's batch adds, after the float model's was looked at; nothing is kept.

        Raises:
            InputError: a shape differs from the float model's.
        """

    def add_reference(self, part: Part) -> None:
        """Take the part of the float model's next batch."""
        self._ours.append(part)

    def begin(self) -> None:
        """Forget the candidate before."""
        self._theirs = []

    def add(self, part: Part) -> None:
        """Take the part of a candidate's next batch."""
        self._theirs.append(part)

    def reference(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        """Take the float model's outputs for the batch of this number, the next one."""
        self.add_reference(self.look(number, outputs, labels))

    def candidate(self, number: int, outputs: Tensors, labels: Tensors) -> None:
        """Take a candidate's outputs for the batch of this number, the next one."""
        self.add(self.compare(number, outputs, labels))

    @abstractmethod
    def reference_value(self) -> Estimate:
        """Return the float model's value, after its last batch."""

    def result(self) -> tuple[Estimate, Estimate]:
        """Return the candidate's value and its loss, after its last batch."""
        nothing = Estimate(math.nan)
        return (nothing, nothing) if any(part.broken for part in self._theirs) else self._result()

    @abstractmethod
    def _result(self) -> tuple[Estimate, Estimate]: ...

    def _remember(self, number: int, name: str, output: Array) -> None:
        nan = is_nan(output)
        place = None
        if nan.any():
            # A bit for each element of the output: too much to hold for all batches.
            place = self._folder / f"{number}.{hashlib.sha256(name.encode()).hexdigest()[:16]}.npy"
            np.save(place, np.packbits(nan), allow_pickle=False)
        self._facts[number, name] = output.shape, place

    def _broken(self, number: int, name: str, output: Array) -> bool:
        """Return whether an output has a NaN where the float model's has a number."""
        shape, place = self._facts[number, name]
        if output.shape != shape:
            raise InputError(
                f"output {name!r}: the reference gives shape {list(shape)}, the candidate {list(output.shape)}"
            )
        nan = is_nan(output)
        if place is not None and nan.any():
            packed: npt.NDArray[np.uint8] = np.load(place, allow_pickle=False)
            nan &= ~np.unpackbits(packed, count=math.prod(shape)).astype(np.bool_).reshape(shape)
        return bool(nan.any())


def comparison(metric: Metric, output: str, label: str | None, folder: Path) -> Comparison:
    """Return an empty comparison by a metric.

    Args:
        metric: The metric.
        output: The output that it looks at.
        label: Its label.
        folder: Where what must be kept of the float model's outputs can lie.
    """
    if isinstance(metric, AloneMetric):
        return _Alone(metric, output, label, folder)
    if isinstance(metric, PairedMetric):
        return _Paired(metric, output, folder)
    assert isinstance(metric, HeldMetric), metric
    return _Held(metric, output, label, folder)


def shares(metric: Metric) -> bool:
    """Return whether losses of a metric are shares of the float value (ratio minus 1) instead of differences."""
    return isinstance(metric, AloneMetric) and metric.reduce is exp_mean


class _Counted(Comparison):
    """What both kinds of metrics have in common that add up a total and a weight a sample."""

    _metric: AloneMetric | PairedMetric

    def reference_value(self) -> Estimate:
        return value_of(self._metric.reduce, _joined(self._ours))

    def _result(self) -> tuple[Estimate, Estimate]:
        ours, theirs, metric = _joined(self._ours), _joined(self._theirs), self._metric
        return value_of(metric.reduce, theirs), loss_of(metric.reduce, metric.direction, ours, theirs)


class _Alone(_Counted):
    def __init__(self, metric: AloneMetric, output: str, label: str | None, folder: Path) -> None:
        super().__init__(output, label, folder)
        self._metric = self._alone = metric

    def _counted(self, outputs: Tensors, labels: Tensors) -> PerSample:
        return self._alone.contribute(outputs[self._output], labels[str(self._label)])

    def look(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        self._remember(number, self._output, outputs[self._output])
        return Part(counted=self._counted(outputs, labels))

    def compare(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        broken = self._broken(number, self._output, outputs[self._output])
        return Part(broken, self._counted(outputs, labels))


class _Paired(_Counted):
    """The float model's own value is that of the comparison with itself."""

    def __init__(self, metric: PairedMetric, output: str, folder: Path) -> None:
        super().__init__(output, None, folder)
        self._metric = self._paired = metric

    def look(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        output = outputs[self._output]
        self._remember(number, self._output, output)
        np.save(self._folder / f"{number}.npy", output, allow_pickle=False)
        return Part(counted=self._paired.contribute(output, output))

    def compare(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        output = outputs[self._output]
        broken = self._broken(number, self._output, output)
        ours: Array = np.load(self._folder / f"{number}.npy", allow_pickle=False)
        return Part(broken, self._paired.contribute(ours, output))


class _Held(Comparison):
    def __init__(self, metric: HeldMetric, output: str, label: str | None, folder: Path) -> None:
        super().__init__(output, label, folder)
        self._metric = metric
        self._reference: tuple[float, Floats] | None = None

    def _kept(self, outputs: Tensors) -> dict[str, Array]:
        return dict(outputs) if self._metric.all_outputs else {self._output: outputs[self._output]}

    def look(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        kept = self._kept(outputs)
        for name, output in kept.items():
            self._remember(number, name, output)
        return Part(outputs=kept, labels=labels)

    def compare(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        kept = self._kept(outputs)
        broken = [self._broken(number, name, output) for name, output in kept.items()]  # every shape is checked
        return Part(any(broken), outputs=kept)

    def reference_value(self) -> Estimate:
        value, parts = self._own()
        return spread(value, parts)

    def _own(self) -> tuple[float, Floats]:
        if self._reference is None:
            self._reference = self._scores(self._ours)
        return self._reference

    def _scores(self, models: Sequence[Part]) -> tuple[float, Floats]:
        metric, meter = self._metric, HeldMeter(self._metric, self._output, self._label)
        whole = {name: meter.join(name, [part.outputs[name] for part in models]) for name in models[0].outputs}
        ours = self._ours
        labels = {name: meter.join(name, [part.labels[name] for part in ours]) for name in ours[0].labels}
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


def _joined(parts: Sequence[Part]) -> PerSample:
    return joined([part.counted for part in parts if part.counted is not None])


def _label_of(array: Array, chosen: Indices, count: int) -> Array:
    """Return the label of some samples; one of all pairs of samples is cut along both axes."""
    return array[np.ix_(chosen, chosen)] if array.shape[:2] == (count, count) else array[chosen]
