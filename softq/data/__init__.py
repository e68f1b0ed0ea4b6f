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
    fixed_batch(inputs)
    for spec in inputs:
        if spec.shape == ():
            raise InputError(f"input {spec.name!r} is a scalar; the first axis of every input must be the samples")
    if not isinstance(source, (str, os.PathLike)):
        data = open_items(f"<{type(source).__name__}>", repeat_items(source), inputs, reject_nan=reject_nan)
    elif FUNCTION.fullmatch(name := os.fspath(source)) and not os.path.exists(name):
        data = open_items(name, repeat_call(name), inputs, reject_nan=reject_nan)
    else:
        data = open_files(name, npz_files(Path(name)), inputs, reject_nan=reject_nan)
    missing = [need_labels] if isinstance(need_labels, str) else [] if isinstance(need_labels, bool) else need_labels
    for label in missing:
        if label not in data.labels:
            there = ", ".join(LABEL + name for name in data.labels) or "none"
            raise InputError(f"{data.source}: no array '{LABEL}{label}'; the labels there are: {there}")
    if need_labels and not data.labels:
        raise InputError(f"{data.source}: no labels; expected an array named '{LABEL}NAME'")
    return data
