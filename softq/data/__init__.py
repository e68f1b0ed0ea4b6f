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

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from softq.data._arrays import LABEL, Array, TensorSpec, fixed_batch
from softq.data._dataset import DEFAULT_BATCH, Batch, Dataset
from softq.data._files import npz_files, open_files
from softq.data._items import FUNCTION, load_function, open_items, repeat_call, repeat_items
from softq.errors import InputError

__all__ = [
    "DEFAULT_BATCH",
    "LABEL",
    "Array",
    "Batch",
    "DataSource",
    "Dataset",
    "TensorSpec",
    "load_function",
    "open_data",
]

DataSource: TypeAlias = "str | os.PathLike[str] | Iterable[Mapping[str, Array]]"
"""What `open_data` takes."""


def open_data(source: DataSource, inputs: Sequence[TensorSpec], *, reject_nan: bool = False) -> Dataset:
    """Return the data of `source`, checked against a model's inputs as far as that is possible without reading it all.

    Args:
        source: A `.npz` file, a folder of them, `package.module:function`, or an iterable of dicts.
        inputs: What the model takes.
        reject_nan: Refuse inputs that contain a NaN (calibration).

    Raises:
        InputError: the data cannot be used; the message names the array, what it is and what was expected.
        UsageError: the function cannot be found.
    """
    fixed_batch(inputs)
    for spec in inputs:
        if spec.shape == ():
            raise InputError(f"input {spec.name!r} is a scalar; the first axis of every input must be the samples")
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        path = Path(name)
        if FUNCTION.fullmatch(name) and not path.exists():
            return open_items(name, repeat_call(name), inputs, reject_nan=reject_nan)
        return open_files(name, npz_files(path), inputs, reject_nan=reject_nan)
    return open_items(f"<{type(source).__name__}>", repeat_items(source), inputs, reject_nan=reject_nan)
