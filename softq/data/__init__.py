"""Evaluation and calibration data: where it comes from, and the checks that stand between it and a model.

DATA has three forms:

* one `.npz` file: an array for each model input under the input's name, labels as `label.NAME`; the first axis of every
  array is the samples. An input that is the same for all samples of the file, such as a mask [queries, keys], is given
  whole as `shared.NAME`; a scalar always is, under its name, too. If all inputs are, the file is one sample;
* a folder of such files, read in the order of their names; sample shapes may differ from file to file;
* `package.module:function` or `file.py:function`: a function without arguments that returns an iterable of dicts with
  the same names.

Nothing is cast, padded, dropped or unpickled. Everything that a file's headers say is checked before the first model
runs, so that the last file of a folder cannot spoil an hour of work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias, cast

from softq.data._arrays import LABEL, SHARED, Array, Header, TensorSpec
from softq.data._dataset import DEFAULT_BATCH, Batch, Dataset
from softq.data._files import npz_files, open_files, read_headers, read_npz
from softq.data._items import FUNCTION, headers_of, load_function, load_object, open_items, repeat_call, repeat_items
from softq.data._layout import without_samples
from softq.errors import InputError, UsageError
from softq.wording import kind_of

__all__ = [
    "DEFAULT_BATCH",
    "LABEL",
    "SHARED",
    "Array",
    "Batch",
    "DataSource",
    "Dataset",
    "Header",
    "TensorSpec",
    "load_function",
    "load_object",
    "look_at",
    "name_of",
    "open_data",
    "read_npz",
    "without_samples",
]

DataSource: TypeAlias = "str | os.PathLike[str] | Iterable[Mapping[str, Array]]"
"""What `open_data` takes."""


def open_data(
    source: DataSource,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec] = (),
    *,
    reject_nan: bool = False,
) -> Dataset:
    """Return the data of `source`, checked against a model's inputs as far as that is possible without reading it all.

    Args:
        source: A `.npz` file, a folder of them, the name of a function, or an iterable of dicts.
        inputs: What the model takes.
        outputs: The model's outputs: their first axes help to tell which inputs have no axis for samples.
        reject_nan: Refuse inputs that contain a NaN (calibration).

    Raises:
        InputError: the data cannot be used; the message names the array, what it is and what was expected.
        UsageError: the function cannot be found, or `source` is nothing of these.
    """
    name = name_of(source)
    items = _items(source)
    begin = partial(Dataset, name, inputs, outputs, reject_nan)
    return open_files(npz_files(Path(name)), begin) if items is None else open_items(name, items, begin)


def look_at(source: DataSource) -> list[dict[str, Header]]:
    """Return type and shape of each array, labels too, of each file or dict: before a model says what it takes.

    Raises:
        InputError: the data cannot be read, or only once, or there are none.
        UsageError: the function cannot be found.
    """
    name, items = name_of(source), _items(source)
    if items is None:
        return [read_headers(file) for file in npz_files(Path(name))]
    if isinstance(source, Iterator):
        raise InputError(f"{name}: can be read only once; pass a list, or a function")
    found = [headers_of(f"{name}: item {number}", item) for number, item in enumerate(items())]
    if not found:
        raise InputError(f"{name}: yields no data")
    return found


def name_of(source: DataSource) -> str:
    """Return what messages call the data."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else f"<{type(source).__name__}>"


def _items(source: DataSource) -> Callable[[], Iterator[object]] | None:
    """Return what goes over the dicts, each time anew; None of files."""
    if not isinstance(source, (str, os.PathLike)):
        if not isinstance(cast("object", source), Iterable):
            raise UsageError(
                f"data is {kind_of(source)}; expected a .npz file, a folder of them, the name of a function, or an"
                " iterable of dicts"
            )
        return repeat_items(source)
    name = os.fspath(source)
    return repeat_call(name) if FUNCTION.fullmatch(name) and not os.path.exists(name) else None
