"""What a meter takes and gives: from batches of outputs of a reference and of candidates to values."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
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


def is_nan(array: Array) -> npt.NDArray[np.bool_]:
    """Return the mask of the NaNs of an array of any type."""
    if array.dtype.kind in "fc":
        return np.isnan(cast("Floats", array))
    return np.zeros(array.shape, np.bool_)


@dataclass(frozen=True)
class Part:
    """What one batch of one model adds to a value; small, but for metrics that need whole outputs.

    Attributes:
        counted: Totals and weights of the samples, for a metric that adds them up.
        outputs: The outputs by name, for a metric that needs all samples at once.
        labels: Their labels.
        nan: NaN counts of a candidate's batch beside the reference's.
    """

    counted: PerSample | None = None
    outputs: Tensors = field(default_factory=dict[str, Array])
    labels: Tensors = field(default_factory=dict[str, Array])
    nan: NanCounts = NanCounts()


@dataclass(frozen=True)
class _Kept:
    """What is known of an output of the reference: shape, how many NaN there are, and where, a bit per element."""

    shape: tuple[int, ...]
    count: int
    places: Array | Path | None


class Meter(ABC):
    """Takes the outputs of a reference and of candidates batch by batch.

    With both models side by side: `update` for each batch, then `result`. With a reference that runs once and
    candidates after it: `look` and `compare` turn a batch into a part, where the models run; `add_reference` and `add`
    take the parts of all batches in order, in another process if need be, and `begin` forgets the candidate before. So
    sums and their order do not depend on where a batch was run.

    Args:
        output: The output that the metric looks at.
        label: Its label.
        folder: Where lies what must be kept of the reference's outputs; None to keep one batch, in memory.
    """

    def __init__(self, output: str, label: str | None, folder: Path | None) -> None:
        self._output, self._label, self._folder = output, label, folder
        self._kept: dict[tuple[int, str], _Kept] = {}
        self._ours: list[Part] = []
        self._theirs: list[Part] = []

    def update(self, reference: Tensors, candidate: Tensors, labels: Tensors) -> None:
        """Take one batch: the outputs of both models for the same samples, and the labels, by name.

        Raises:
            InputError: shapes or labels make no sense for this metric.
        """
        self._keep(0, reference)
        self._ours += self._beside(reference, labels)
        self.add(self.compare(0, candidate, labels))

    def result(self) -> Measured:
        """Return the values over all batches so far."""
        nan = sum((part.nan for part in self._theirs), NanCounts())
        measured = self._measure(nan)
        return replace(measured, candidate=math.nan) if nan.candidate_only else measured

    def look(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        """Return what the reference's batch of this number adds; keep what candidates are compared with."""
        self._keep(number, outputs)
        return self._own(outputs, labels)

    def compare(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        """Return what a candidate's batch adds, after the reference's was looked at; nothing is kept.

        Raises:
            InputError: a shape differs from the reference's.
        """
        nan = sum((self._count_nans(number, name, outputs[name]) for name in self.outputs(outputs)), NanCounts())
        return replace(self._against(number, outputs, labels), nan=nan)

    def add_reference(self, part: Part) -> None:
        """Take the part of the reference's next batch."""
        self._ours.append(part)

    def begin(self) -> None:
        """Forget the candidate before."""
        self._theirs = []

    def add(self, part: Part) -> None:
        """Take the part of a candidate's next batch."""
        self._theirs.append(part)

    @property
    def broken(self) -> bool:
        """Whether the candidate has a NaN where the reference has a number."""
        return any(part.nan.candidate_only for part in self._theirs)

    def outputs(self, there: Tensors) -> list[str]:
        """Return the names of the outputs that the metric looks at."""
        return [self._output]

    @abstractmethod
    def _own(self, outputs: Tensors, labels: Tensors) -> Part:
        """Return what the reference's batch adds to its own value."""

    def _beside(self, outputs: Tensors, labels: Tensors) -> list[Part]:
        """Return the same where a candidate's batch follows at once."""
        return [self._own(outputs, labels)]

    @abstractmethod
    def _against(self, number: int, outputs: Tensors, labels: Tensors) -> Part:
        """Return what a candidate's batch adds; its NaN are counted elsewhere."""

    @abstractmethod
    def _measure(self, nan: NanCounts) -> Measured: ...

    def _keep(self, number: int, outputs: Tensors) -> None:
        for name in self.outputs(outputs):
            nan = is_nan(outputs[name])
            places = self._store(number, name, np.packbits(nan)) if nan.any() else None
            self._kept[number, name] = _Kept(outputs[name].shape, int(nan.sum()), places)

    def _count_nans(self, number: int, name: str, output: Array) -> NanCounts:
        kept = self._kept[number, name]
        if output.shape != kept.shape:
            raise InputError(
                f"output {name!r}: the reference gives shape {list(kept.shape)}, the candidate {list(output.shape)}"
            )
        nan = is_nan(output)
        both = 0
        if kept.places is not None and nan.any():
            places = cast("npt.NDArray[np.uint8]", self._load(kept.places))
            both = int(np.unpackbits(places, count=nan.size).astype(np.bool_).reshape(nan.shape)[nan].sum())
        count = int(nan.sum())
        return NanCounts(kept.count, count, both, count - both)

    def _store(self, number: int, name: str, array: Array) -> Array | Path:
        if self._folder is None:
            return array
        path = self._folder / f"{number}.{hashlib.sha256(name.encode()).hexdigest()[:16]}.npy"
        np.save(path, array, allow_pickle=False)
        return path

    def _load(self, stored: Array | Path) -> Array:
        return np.load(stored, allow_pickle=False) if isinstance(stored, Path) else stored
