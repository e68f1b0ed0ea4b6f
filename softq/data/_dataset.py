"""Data that were checked against a model, in batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from softq.data._arrays import (
    LABEL,
    Array,
    Header,
    TensorSpec,
    bind,
    check,
    count_samples,
    cut,
    dtype_name,
    fixed_batch,
    refuse_nan,
    same_labels,
)
from softq.errors import InputError, UsageError

DEFAULT_BATCH = 32


@dataclass(frozen=True)
class Batch:
    """Some consecutive samples: input arrays and label arrays by name, all with the same first axis.

    An input that is a scalar has one value for all of them.
    """

    inputs: dict[str, Array]
    labels: dict[str, Array]

    @property
    def samples(self) -> int:
        """Number of samples."""
        return count_samples({**self.inputs, **self.labels})


@dataclass(frozen=True)
class Part:
    """One file or one dict: what to call it in messages, how to get its arrays, how many samples if that is known."""

    where: str
    load: Callable[[], Mapping[str, Array]]
    samples: int | None = None

    def cut(self, chosen: slice | npt.NDArray[np.intp], count: int) -> Part:
        """Return so many of its samples; nothing is read yet."""
        return Part(self.where, lambda: {name: cut(array, chosen) for name, array in self.load().items()}, count)


class Dataset:
    """Inputs and labels that were checked against a model; made by `open_data`.

    Attributes:
        source: The data's name as the caller gave it.
        inputs: The model inputs that it was opened for.
        labels: Type and shape (in the first part) of each label, by name without `label.`.
        samples: Number of samples, or None where only reading everything would tell.
        sizes: The numbers that stand for the inputs' symbolic dimensions in the first part.
        fixed_batch: The batch size that the model prescribes, or None.
    """

    def __init__(
        self,
        source: str,
        inputs: Sequence[TensorSpec],
        parts: Callable[[], Iterator[Part]],
        first: Mapping[str, Header],
        samples: int | None,
        *,
        reject_nan: bool,
    ) -> None:
        self.source = source
        self.inputs = tuple(inputs)
        self.samples = samples
        self.fixed_batch = fixed_batch(inputs)
        self.labels = {
            name.removeprefix(LABEL): TensorSpec(name.removeprefix(LABEL), dtype_name(header.dtype), header.shape)
            for name, header in first.items()
            if name.startswith(LABEL)
        }
        self.sizes = bind(source, {name: first[name].shape for name in (s.name for s in inputs)}, inputs)
        self._parts = parts
        self._reject_nan = reject_nan

    def batch_size(self, size: int | None = None) -> int:
        """Return the batch size that `batches(size)` uses: the model's own, else `size`, else 32.

        Raises:
            UsageError: `size` is below 1, or is not what the model prescribes.
        """
        if size is not None and size < 1:
            raise UsageError(f"batch is {size}; it must be at least 1")
        if self.fixed_batch is not None:
            if size not in (None, self.fixed_batch):
                raise UsageError(f"batch is {size}, but the model's inputs are fixed at {self.fixed_batch} samples")
            return self.fixed_batch
        return DEFAULT_BATCH if size is None else size

    def between(self, start: int, stop: int | None = None) -> Dataset:
        """Return the samples from `start` up to but without `stop`, as data of their own; nothing is read yet.

        Files that hold none of them are never read.
        """

        def parts() -> Iterator[Part]:
            at = 0
            for part in self._parts():
                if stop is not None and at >= stop:
                    return
                if part.samples is None:
                    arrays = part.load()
                    part = Part(part.where, lambda arrays=arrays: arrays, count_samples(arrays))
                assert part.samples is not None
                low, high = max(start - at, 0), part.samples if stop is None else min(stop - at, part.samples)
                at += part.samples
                if low < high:
                    yield part.cut(slice(low, high), high - low)

        count = self.samples
        return self._of_parts(
            parts, None if count is None else max(0, count if stop is None else min(stop, count)) - start
        )

    def spread(self, count: int, size: int | None = None) -> Dataset:
        """Return so many batches of `batch_size(size)`, evenly spread, as data of their own; all if there are no more.

        Of data whose samples are not counted they are the first.

        Raises:
            UsageError: see `batch_size`.
        """
        step = self.batch_size(size)
        whole = self.samples
        if whole is None or whole <= count * step:
            return self if whole is not None else self.between(0, count * step)
        starts = [whole * number // count // step * step for number in range(count)]
        wanted = np.concatenate([np.arange(start, start + step) for start in starts])

        def parts() -> Iterator[Part]:
            at = 0
            for part in self._parts():
                assert part.samples is not None
                here = wanted[(wanted >= at) & (wanted < at + part.samples)] - at
                at += part.samples
                if len(here):
                    yield part.cut(here, len(here))

        return self._of_parts(parts, len(wanted))

    def _of_parts(self, parts: Callable[[], Iterator[Part]], samples: int | None) -> Dataset:
        portion = copy.copy(self)
        portion._parts, portion.samples = parts, samples
        return portion

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """Yield the samples in order, at most `batch_size(size)` at a time; a batch never spans two files.

        Only one file is in memory at a time.

        Raises:
            InputError: a part does not fit the model; the message names the array, what it is and what was expected.
            UsageError: see `batch_size`.
        """
        step = self.batch_size(size)
        empty = True
        for part in self._parts():
            empty = False
            arrays = part.load()
            count = check(part.where, {k: Header(v.dtype, v.shape) for k, v in arrays.items()}, self.inputs)
            same_labels(part.where, arrays, self.labels)
            if self._reject_nan:
                refuse_nan(part.where, {s.name: arrays[s.name] for s in self.inputs})
            for start in range(0, count, step):
                chunk = slice(start, start + step)
                # Copies: a view that the caller still holds would keep this file in memory while the next is read.
                yield Batch(
                    {s.name: cut(arrays[s.name], chunk).copy() for s in self.inputs},
                    {name: arrays[LABEL + name][chunk].copy() for name in self.labels},
                )
            del arrays
        if empty:
            raise InputError(f"{self.source}: yields no data")
