"""Data that were checked against a model, in batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from softq.data._arrays import LABEL, SHARED, Array, Header, TensorSpec, dtype_name, refuse_nan
from softq.data._layout import Layout, check_multiple, read_layout
from softq.errors import InputError, UsageError

DEFAULT_BATCH = 32


@dataclass(frozen=True)
class Batch:
    """Some consecutive samples: input arrays and label arrays by name.

    Attributes:
        inputs: The model's inputs, with the samples along the first axis.
        labels: The labels, likewise.
        shared: Names of the inputs that are the same for all samples and have no axis for them.
    """

    inputs: dict[str, Array]
    labels: dict[str, Array]
    shared: frozenset[str] = frozenset()

    @property
    def samples(self) -> int:
        """Number of samples."""
        arrays = [*self.labels.values(), *(array for name, array in self.inputs.items() if name not in self.shared)]
        return len(arrays[0]) if arrays else 1

    def each(self, name: str) -> Iterable[Array]:
        """Return an input's part of each sample."""
        return repeat(self.inputs[name], self.samples) if name in self.shared else self.inputs[name]

    def cut(self, chosen: slice | npt.NDArray[np.intp]) -> Batch:
        """Return some of the samples."""
        inputs = {name: array if name in self.shared else array[chosen] for name, array in self.inputs.items()}
        return Batch(inputs, {name: array[chosen] for name, array in self.labels.items()}, self.shared)


@dataclass(frozen=True)
class Part:
    """One file or one dict: its name in messages, the function that reads its samples, their number if it is known."""

    where: str
    load: Callable[[], Batch]
    samples: int | None = None

    def cut(self, chosen: slice | npt.NDArray[np.intp], count: int) -> Part:
        """Return so many of its samples; nothing is read yet."""
        return Part(self.where, lambda: self.load().cut(chosen), count)


class Dataset:
    """Inputs and labels that were checked against a model; made by `open_data`.

    Attributes:
        source: The data's name as the caller gave it.
        inputs: The model inputs that it was opened for.
        labels: Type and shape (in the first part) of each label, by name without `label.`.
        samples: Number of samples, or None where only reading everything would tell.
        shared: The inputs that are the same for all samples of a part.
        sizes: The numbers that stand for the inputs' symbolic dimensions in the first part.
        fixed_batch: The batch size that the model or an array for all samples prescribes, or None.
    """

    def __init__(
        self, source: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], reject_nan: bool,
        where: str, first: Mapping[str, Header],
    ) -> None:  # fmt: skip
        """Take the headers of the first part, `where`, which the others must resemble; there are no parts yet."""
        self.source, self.inputs, self._outputs, self._reject_nan = source, tuple(inputs), outputs, reject_nan
        self.samples: int | None = 0
        self._parts: Callable[[], Iterator[Part]] = lambda: iter(())
        layout = read_layout(where, first, inputs, outputs)
        self.shared, self.sizes, self.fixed_batch = layout.shared, layout.sizes, layout.fixed_batch
        self.labels = {
            name.removeprefix(LABEL): TensorSpec(name.removeprefix(LABEL), dtype_name(header.dtype), header.shape)
            for name, header in first.items()
            if name not in layout.names.values()
        }
        self._others = {LABEL + name for name in self.labels} | {SHARED + name for name in layout.shared}

    def of_parts(self, parts: Callable[[], Iterator[Part]], samples: int | None) -> Dataset:
        """Return the same data with other parts."""
        portion = copy.copy(self)
        portion._parts, portion.samples = parts, samples
        return portion

    def check(self, where: str, headers: Mapping[str, Header]) -> Layout:
        """Return the layout of a part.

        Raises:
            InputError: an array does not fit the model, or is not as in the first part.
        """
        layout = read_layout(where, headers, self.inputs, self._outputs)
        others = headers.keys() - layout.names.values() | {SHARED + name for name in layout.shared}
        for name in sorted(others ^ self._others):
            lacks = f"no array {name!r}, which the data before it has"
            raise InputError(
                f"{where}: " + (lacks if name in self._others else f"array {name!r} is not in the data before it")
            )
        if (runs := layout.fixed_batch) != self.fixed_batch:
            raise InputError(f"{where}: takes {runs} samples at a time, the data before it {self.fixed_batch}")
        return layout

    def read(self, where: str, arrays: Mapping[str, Array]) -> Batch:
        """Return all samples of a part.

        Raises:
            InputError: an array does not fit.
        """
        layout = self.check(where, {name: Header(array.dtype, array.shape) for name, array in arrays.items()})
        inputs = {name: arrays[key] for name, key in layout.names.items()}
        if self._reject_nan:
            refuse_nan(where, inputs)
        return Batch(inputs, {name: arrays[LABEL + name] for name in self.labels}, layout.shared)

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
                    read = part.load()
                    part = Part(part.where, lambda read=read: read, read.samples)
                assert part.samples is not None
                low, high = max(start - at, 0), part.samples if stop is None else min(stop - at, part.samples)
                at += part.samples
                if low < high:
                    yield part.cut(slice(low, high), high - low)

        count = self.samples
        return self.of_parts(
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

        return self.of_parts(parts, len(wanted))

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
            whole = part.load()
            check_multiple(part.where, whole.samples, self.fixed_batch)
            for start in range(0, whole.samples, step):
                # Copies: a view that the caller still holds would keep this file in memory while the next is read.
                yield copy.deepcopy(whole.cut(slice(start, start + step)))
            del whole
        if empty:
            raise InputError(f"{self.source}: yields no data")
