"""A user's own arrays in the types that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from softq.data import LABEL, SHARED, Array, read_npz
from softq.errors import InputError
from softq.samples.inputs import Input


def cast_arrays(path: str, inputs: Sequence[Input]) -> dict[str, Array]:
    """Return the arrays of a .npz file: those of inputs in the model's types, labels as they are.

    Floats become narrower floats, and integers others or floats, if each value is one of the new type.

    Raises:
        InputError: the file cannot be used, lacks an input, or a value would change by more than rounding.
    """
    arrays = read_npz(Path(path))
    made = {name: array for name, array in arrays.items() if name.startswith(LABEL)}
    for one in inputs:
        name = SHARED + one.name if SHARED + one.name in arrays else one.name
        if name not in arrays:
            raise InputError(f"{path}: no array {one.name!r}; the model expects {one}")
        made[one.array if name == one.name else name] = _cast(path, one, arrays[name])
    return made


def _cast(path: str, one: Input, array: Array) -> Array:
    wanted = np.dtype(one.dtype)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path}: array {one.name!r} is {array.dtype.name}, which is no number")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(wanted)
    if array.dtype.kind == "f" and wanted.kind not in "biu":
        changed = np.isfinite(array) & ~np.isfinite(cast)  # beyond the range; all else is rounded
    else:
        changed = cast.astype(array.dtype) != array
    if np.any(changed):
        value = array[changed].flat[0]
        raise InputError(f"{path}: array {one.name!r} has {value!s}, which is no {one.dtype}")
    return cast
