"""Evaluation and calibration data: where it comes from, and the checks that stand between it and a model.

DATA has three forms:

* one `.npz` file: an array for each model input under the input's name, labels as `label.NAME`; the first axis of every
  array is the samples;
* a folder of such files, read in the order of their names; sample shapes may differ from file to file;
* `package.module:function`: a function without arguments that returns an iterable of dicts with the same names.

Nothing is cast, padded, dropped or unpickled. Everything that a file's headers say is checked before the first model
runs, so that the last file of a folder cannot spoil an hour of work.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import math
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from softq.errors import InputError, UsageError

Array: TypeAlias = npt.NDArray[np.generic]

DataSource: TypeAlias = "str | os.PathLike[str] | Iterable[Mapping[str, Array]]"
"""What `open_data` takes."""

LABEL = "label."
"""Prefix that marks an array as a label; the label's name is what follows."""

DEFAULT_BATCH = 32

_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


@dataclass(frozen=True)
class TensorSpec:
    """Name, NumPy type name and shape of a model's input or output.

    Attributes:
        name: The tensor's name.
        dtype: NumPy's name of the element type, such as `float32`; `str` for strings.
        shape: A number, a symbol or None (anything) for each axis; None if the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} of any shape"
        return f"{self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True)
class Batch:
    """Some consecutive samples: input arrays and label arrays by name, all with the same first axis."""

    inputs: dict[str, Array]
    labels: dict[str, Array]

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter((self.inputs or self.labels).values())))


@dataclass(frozen=True)
class _Header:
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class _Part:
    """One file or one dict: what to call it in messages, how to get its arrays, how many samples if that is known."""

    where: str
    load: Callable[[], Mapping[str, Array]]
    samples: int | None = None


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
        parts: Callable[[], Iterator[_Part]],
        first: Mapping[str, _Header],
        samples: int | None,
        *,
        reject_nan: bool,
    ) -> None:
        self.source = source
        self.inputs = tuple(inputs)
        self.samples = samples
        self.fixed_batch = _fixed_batch(inputs)
        self.labels = {
            name.removeprefix(LABEL): TensorSpec(name.removeprefix(LABEL), _dtype_name(header.dtype), header.shape)
            for name, header in first.items()
            if name.startswith(LABEL)
        }
        self.sizes = _bind(source, {name: first[name].shape for name in (s.name for s in inputs)}, inputs)
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

        def parts() -> Iterator[_Part]:
            at = 0
            for part in self._parts():
                if stop is not None and at >= stop:
                    return
                if part.samples is None:
                    arrays = part.load()
                    part = _Part(part.where, lambda arrays=arrays: arrays, len(next(iter(arrays.values()))))
                assert part.samples is not None
                low, high = max(start - at, 0), part.samples if stop is None else min(stop - at, part.samples)
                at += part.samples
                if low < high:
                    chunk = slice(low, high)
                    yield _Part(part.where, lambda part=part, chunk=chunk: _cut(part.load(), chunk), high - low)

        portion = copy.copy(self)
        portion._parts = parts
        if self.samples is not None:
            portion.samples = max(0, self.samples if stop is None else min(stop, self.samples)) - start
        return portion

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

        def parts() -> Iterator[_Part]:
            at = 0
            for part in self._parts():
                assert part.samples is not None
                here = wanted[(wanted >= at) & (wanted < at + part.samples)] - at
                at += part.samples
                if len(here):
                    yield _Part(part.where, lambda part=part, here=here: _cut(part.load(), here), len(here))

        portion = copy.copy(self)
        portion._parts, portion.samples = parts, len(wanted)
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
            count = _check(part.where, {k: _Header(v.dtype, v.shape) for k, v in arrays.items()}, self.inputs)
            _same_labels(part.where, arrays, self.labels)
            if self._reject_nan:
                _refuse_nan(part.where, {s.name: arrays[s.name] for s in self.inputs})
            for start in range(0, count, step):
                chunk = slice(start, start + step)
                # Copies: a view that the caller still holds would keep this file in memory while the next is read.
                yield Batch(
                    {s.name: arrays[s.name][chunk].copy() for s in self.inputs},
                    {name: arrays[LABEL + name][chunk].copy() for name in self.labels},
                )
            del arrays
        if empty:
            raise InputError(f"{self.source}: yields no data")


def open_data(
    source: DataSource,
    inputs: Sequence[TensorSpec],
    *,
    need_labels: bool | Sequence[str] = False,
    reject_nan: bool = False,
) -> Dataset:
    """Return the data of `source`, checked against a model's inputs as far as that is possible without reading it all.

    Args:
        source: A `.npz` file, a folder of them, `package.module:function`, or an iterable of dicts.
        inputs: What the model takes.
        need_labels: True if at least one label must be there, or the names of the labels that must be there.
        reject_nan: Refuse inputs that contain a NaN (calibration).

    Raises:
        InputError: the data cannot be used; the message names the array, what it is and what was expected.
        UsageError: the function cannot be found.
    """
    _fixed_batch(inputs)
    for spec in inputs:
        if spec.shape == ():
            raise InputError(f"input {spec.name!r} is a scalar; the first axis of every input must be the samples")
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        path = Path(name)
        if _FUNCTION.fullmatch(name) and not path.exists():
            data = _open_items(name, _calling(name), inputs, reject_nan=reject_nan)
        else:
            data = _open_files(name, _files(path), inputs, reject_nan=reject_nan)
    else:
        data = _open_items(f"<{type(source).__name__}>", _iterating(source), inputs, reject_nan=reject_nan)
    missing = [need_labels] if isinstance(need_labels, str) else [] if isinstance(need_labels, bool) else need_labels
    for label in missing:
        if label not in data.labels:
            there = ", ".join(LABEL + name for name in data.labels) or "none"
            raise InputError(f"{data.source}: no array '{LABEL}{label}'; the labels there are: {there}")
    if need_labels and not data.labels:
        raise InputError(f"{data.source}: no labels; expected an array named '{LABEL}NAME'")
    return data


def load_function(text: str, noun: str) -> Callable[..., object]:
    """Return the function that `package.module:function` names; modules in the working directory are found too.

    Args:
        text: Module and function, joined by a colon.
        noun: What the function is, for messages.

    Raises:
        UsageError: there is no such module or function, or the module cannot be imported.
    """
    if not _FUNCTION.fullmatch(text):
        raise UsageError(f"{noun} {text!r} is not of the form package.module:function")
    module_name, _, path = text.partition(":")
    # Stays on the path, as with other tools that take module:function: the function may import its neighbours later.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(f"{noun} {text!r}: cannot import {module_name}: {_line(error)}") from error
    for step in path.split("."):
        found = getattr(found, step, None)
    if not callable(found):
        raise UsageError(f"{noun} {text!r}: module {module_name} has no function {path!r}")
    return found


# Files


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted((f for f in path.glob("*.npz") if not f.name.startswith(".")), key=lambda f: f.name)
        if not files:
            raise InputError(f"{path}: the folder has no .npz files")
        return files
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; DATA is .npz, a folder of .npz, or package.module:function")
    return [path]


def _open_files(name: str, files: Sequence[Path], inputs: Sequence[TensorSpec], *, reject_nan: bool) -> Dataset:
    first: Mapping[str, _Header] = {}
    counts: list[int] = []
    for path in files:
        headers = _read_headers(path)
        counts.append(_check(str(path), headers, inputs))
        if not first:
            first = headers
        _same_labels(str(path), headers, {k.removeprefix(LABEL) for k in first if k.startswith(LABEL)})

    def parts() -> Iterator[_Part]:
        given = zip(files, counts, strict=True)
        return (_Part(str(path), lambda path=path: _read_arrays(path), count) for path, count in given)

    return Dataset(name, inputs, parts, first, sum(counts), reject_nan=reject_nan)


def _cut(arrays: Mapping[str, Array], chunk: slice | npt.NDArray[np.intp]) -> dict[str, Array]:
    return {name: array[chunk] for name, array in arrays.items()}


def _read_headers(path: Path) -> dict[str, _Header]:
    """Type and shape of every array, from the first bytes of each: gigabytes stay on the disk."""
    headers: dict[str, _Header] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name == member.filename:
                    raise InputError(f"{path}: contains {member.filename!r}, which is not an array")
                if name in headers:
                    raise InputError(f"{path}: contains array {name!r} twice")
                with archive.open(member) as stream:
                    headers[name] = _read_header(f"{path}: array {name!r}", stream, member.file_size)
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not a .npz file, or a damaged one: {_line(error)}") from error
    except (OSError, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be read: {_line(error)}") from error
    return headers


def _read_header(what: str, stream: IO[bytes], size: int) -> _Header:
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise InputError(f"{what} is in .npy version {version[0]}.{version[1]}; 1.0 and 2.0 can be read")
    except ValueError as error:
        raise InputError(f"{what} is damaged: {_line(error)}") from error
    if dtype.hasobject:
        raise InputError(f"{what} contains pickled objects, which are never loaded")
    # A header may promise more than the file holds; numpy would allocate it before it notices.
    if stream.tell() + dtype.itemsize * math.prod(shape) != size:
        raise InputError(f"{what} is damaged: its header says {_Header(dtype, shape)}, its size says otherwise")
    return _Header(dtype, shape)


def _read_arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {_line(error)}") from error


# Functions and iterables


def _calling(name: str) -> Callable[[], Iterator[object]]:
    function = load_function(name, "data function")

    def again() -> Iterator[object]:
        try:
            items = function()
        except Exception as error:
            raise InputError(f"{name}: raised {type(error).__name__}: {_line(error)}") from error
        if not isinstance(items, Iterable) or isinstance(items, (str, Mapping)):
            raise InputError(f"{name}: returned a {type(items).__name__}; expected an iterable of dicts of arrays")
        return _guarded(name, cast("Iterable[object]", items))

    return again


def _guarded(name: str, items: Iterable[object]) -> Iterator[object]:
    try:
        yield from items
    except Exception as error:
        raise InputError(f"{name}: raised {type(error).__name__}: {_line(error)}") from error


def _iterating(items: Iterable[Mapping[str, Array]]) -> Callable[[], Iterator[object]]:
    if isinstance(items, Mapping):
        raise InputError("<dict>: data is an iterable of dicts; put the one dict into a list")
    used = False

    def again() -> Iterator[object]:
        nonlocal used
        iterator = iter(items)
        if used and iterator is items:
            raise InputError(f"<{type(items).__name__}>: can be read only once; pass a list, or a function")
        used = True
        return iterator

    return again


def _open_items(
    name: str, again: Callable[[], Iterator[object]], inputs: Sequence[TensorSpec], *, reject_nan: bool
) -> Dataset:
    # The labels must be known before the first batch, so the first item is taken now and kept for the first pass.
    pending: Iterator[object] | None = again()
    try:
        first = next(pending)
    except StopIteration:
        raise InputError(f"{name}: yields no data") from None
    pending = itertools.chain([first], pending)

    def parts() -> Iterator[_Part]:
        nonlocal pending
        items, pending = pending, None
        for index, item in enumerate(again() if items is None else items):
            where = f"{name}: item {index}"
            yield _Part(where, lambda where=where, item=item: _arrays(where, item))

    where = f"{name}: item 0"
    headers = {key: _Header(array.dtype, array.shape) for key, array in _arrays(where, first).items()}
    _check(where, headers, inputs)
    return Dataset(name, inputs, parts, headers, None, reject_nan=reject_nan)


def _arrays(where: str, item: object) -> dict[str, Array]:
    if not isinstance(item, Mapping):
        raise InputError(f"{where} is a {type(item).__name__}; expected a dict of arrays")
    arrays: dict[str, Array] = {}
    for name, array in cast("Mapping[object, object]", item).items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise InputError(f"{where}: {name!r} is a {type(array).__name__}; expected a numpy array under a name")
        arrays[name] = array
    return arrays


# Checks


def _check(where: str, headers: Mapping[str, _Header], inputs: Sequence[TensorSpec]) -> int:
    """Return the number of samples, or raise the InputError that names the first array that does not fit."""
    specs = {spec.name: spec for spec in inputs}
    for spec in inputs:
        if spec.name not in headers:
            raise InputError(f"{where}: no array {spec.name!r}; the model expects {spec}")
    for name, header in headers.items():
        if name not in specs and (not name.startswith(LABEL) or name == LABEL):
            wanted = ", ".join(map(repr, specs)) or "none"
            raise InputError(f"{where}: unknown array {name!r}; the model takes {wanted}; labels are '{LABEL}NAME'")
        if header.dtype.hasobject:
            raise InputError(f"{where}: array {name!r} holds Python objects; expected numbers")
        if not header.shape:
            raise InputError(f"{where}: array {name!r} is a scalar; its first axis must be the samples")
        if math.prod(header.shape) == 0:
            raise InputError(f"{where}: array {name!r} is empty: {header}; at least one sample is needed")
    for spec in inputs:
        header = headers[spec.name]
        if _dtype_name(header.dtype) != spec.dtype:
            kind = _dtype_name(header.dtype)
            raise InputError(
                f"{where}: array {spec.name!r} is {kind}; the model expects {spec.dtype}, and nothing is cast"
            )
        if spec.shape is not None and not _fits(header.shape, spec.shape):
            raise InputError(f"{where}: array {spec.name!r} is {header}; the model expects {spec}")
    counts = {name: header.shape[0] for name, header in headers.items()}
    leader = next(iter(counts), None)
    if leader is None:
        raise InputError(f"{where}: contains no arrays")
    for name, count in counts.items():
        if count != counts[leader]:
            raise InputError(f"{where}: array {name!r} has {count} samples; {leader!r} has {counts[leader]}")
    _bind(where, {spec.name: headers[spec.name].shape for spec in inputs}, inputs)
    fixed = _fixed_batch(inputs)
    if fixed is not None and counts[leader] % fixed:
        raise InputError(
            f"{where}: has {counts[leader]} samples; the model takes exactly {fixed} at a time,"
            f" which leaves {counts[leader] % fixed}"
        )
    return counts[leader]


def _fits(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> bool:
    # The first axis is cut into batches, so a fixed number there is no demand on the file.
    pairs = list(zip(shape, wanted, strict=False))[1:]
    return len(shape) == len(wanted) and all(not isinstance(w, int) or w == s for s, w in pairs)


def _bind(where: str, shapes: Mapping[str, tuple[int, ...]], inputs: Sequence[TensorSpec]) -> dict[str, int]:
    sizes: dict[str, tuple[int, str]] = {}
    for spec in inputs:
        for size, symbol in list(zip(shapes[spec.name], spec.shape or (), strict=False))[1:]:
            if isinstance(symbol, str) and sizes.setdefault(symbol, (size, spec.name))[0] != size:
                known, owner = sizes[symbol]
                raise InputError(
                    f"{where}: array {spec.name!r} has {symbol!r} = {size} in its shape"
                    f" {list(shapes[spec.name])}; array {owner!r} has {symbol!r} = {known}"
                )
    return {symbol: size for symbol, (size, _) in sizes.items()}


def _fixed_batch(inputs: Sequence[TensorSpec]) -> int | None:
    fixed = {spec.name: spec.shape[0] for spec in inputs if spec.shape and isinstance(spec.shape[0], int)}
    if len(set(fixed.values())) > 1:
        raise InputError(
            f"the model's inputs have different fixed first axes: {', '.join(f'{k!r} {v}' for k, v in fixed.items())};"
            " the first axis must be the samples"
        )
    return next(iter(fixed.values()), None)


def _same_labels(where: str, names: Iterable[str], expected: Iterable[str]) -> None:
    labels, expected = {n.removeprefix(LABEL) for n in names if n.startswith(LABEL)}, set(expected)
    for name in sorted(expected - labels):
        raise InputError(f"{where}: no array '{LABEL}{name}', which the data before it has")
    for name in sorted(labels - expected):
        raise InputError(f"{where}: array '{LABEL}{name}' is not in the data before it")


def _refuse_nan(where: str, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "fc":
            bad = np.isnan(cast("npt.NDArray[np.float64]", array))
            if bad.any():
                place = [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)]
                raise InputError(
                    f"{where}: array {name!r} contains {int(bad.sum())} NaN, the first at {place}; expected none"
                )


def _dtype_name(dtype: np.dtype[np.generic]) -> str:
    """NumPy's name of the type; a foreign byte order keeps its mark, because a model would read it wrongly."""
    if dtype.kind == "U":
        return "str"
    return dtype.name if dtype.isnative else dtype.str


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
