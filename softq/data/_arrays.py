"""What is said of arrays without their values: types, shapes, and the checks against a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from softq.errors import InputError
from softq.wording import counted

Array: TypeAlias = npt.NDArray[np.generic]

LABEL = "label."
"""Prefix that marks an array as a label; the label's name is what follows."""


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
class Header:
    """Type and shape of an array."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


def check(where: str, headers: Mapping[str, Header], inputs: Sequence[TensorSpec]) -> int:
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
        if not header.shape and not _may_be_scalar(specs.get(name)):
            raise InputError(f"{where}: array {name!r} is a scalar; its first axis must be the samples")
        if math.prod(header.shape) == 0:
            raise InputError(f"{where}: array {name!r} is empty: {header}; at least one sample is needed")
    for spec in inputs:
        header = headers[spec.name]
        if dtype_name(header.dtype) != spec.dtype:
            kind = dtype_name(header.dtype)
            raise InputError(
                f"{where}: array {spec.name!r} is {kind}; the model expects {spec.dtype}, and nothing is cast"
                + (" unless asked for: softq data MODEL OUT.npz --cast FILE.npz" if where.endswith(".npz") else "")
            )
        if spec.shape is not None and not _fits(header.shape, spec.shape):
            one = "" if spec.shape else ", one value for all samples"
            raise InputError(f"{where}: array {spec.name!r} is {header}; the model expects {spec}{one}")
    if inputs and not any(headers[spec.name].shape for spec in inputs):
        raise InputError(f"{where}: every input of the model is a scalar: there are no samples to tell apart")
    counts = {name: header.shape[0] for name, header in headers.items() if header.shape}
    leader = next(iter(counts), None)
    if leader is None:
        raise InputError(f"{where}: contains no arrays")
    for name, count in counts.items():
        if count != counts[leader]:
            raise InputError(f"{where}: array {name!r} has {counted(count, 'sample')}; {leader!r} has {counts[leader]}")
    bind(where, {spec.name: headers[spec.name].shape for spec in inputs}, inputs)
    fixed = fixed_batch(inputs)
    if fixed is not None and counts[leader] % fixed:
        raise InputError(
            f"{where}: has {counted(counts[leader], 'sample')}; the model takes exactly {fixed} at a time,"
            f" which leaves {counts[leader] % fixed}"
        )
    return counts[leader]


def _may_be_scalar(spec: TensorSpec | None) -> bool:
    return spec is not None and not spec.shape


def count_samples(arrays: Mapping[str, Array]) -> int:
    """Return the number of samples of arrays that `check` has passed; a scalar is the same for all of them."""
    return next(len(array) for array in arrays.values() if array.ndim)


def cut(array: Array, chosen: slice | npt.NDArray[np.intp]) -> Array:
    """Return some samples of an array; a scalar stays."""
    return array[chosen] if array.ndim else array


def _fits(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> bool:
    # The first axis is cut into batches, so a fixed number there is no demand on the file.
    pairs = list(zip(shape, wanted, strict=False))[1:]
    return len(shape) == len(wanted) and all(not isinstance(w, int) or w == s for s, w in pairs)


def bind(where: str, shapes: Mapping[str, tuple[int, ...]], inputs: Sequence[TensorSpec]) -> dict[str, int]:
    """Return the number that each symbolic dimension stands for, the first axis aside; refuse one that has two."""
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


def fixed_batch(inputs: Sequence[TensorSpec]) -> int | None:
    """Return the batch size that a model prescribes, or None."""
    fixed = {spec.name: spec.shape[0] for spec in inputs if spec.shape and isinstance(spec.shape[0], int)}
    if len(set(fixed.values())) > 1:
        raise InputError(
            f"the model's inputs have different fixed first axes: {', '.join(f'{k!r} {v}' for k, v in fixed.items())};"
            " the first axis must be the samples"
        )
    return next(iter(fixed.values()), None)


def same_labels(where: str, names: Iterable[str], expected: Iterable[str]) -> None:
    """Refuse labels that are not those of the data before."""
    labels, expected = {n.removeprefix(LABEL) for n in names if n.startswith(LABEL)}, set(expected)
    for name in sorted(expected - labels):
        raise InputError(f"{where}: no array '{LABEL}{name}', which the data before it has")
    for name in sorted(labels - expected):
        raise InputError(f"{where}: array '{LABEL}{name}' is not in the data before it")


def refuse_nan(where: str, arrays: Mapping[str, Array]) -> None:
    """Refuse inputs that hold a NaN; the message names the first."""
    for name, array in arrays.items():
        if array.dtype.kind in "fc":
            bad = np.isnan(cast("npt.NDArray[np.float64]", array))
            if bad.any():
                place = [int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)]
                raise InputError(
                    f"{where}: array {name!r} contains {int(bad.sum())} NaN, the first at {place}; expected none"
                )


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """NumPy's name of the type; a foreign byte order keeps its mark, because a model would read it wrongly."""
    if dtype.kind == "U":
        return "str"
    return dtype.name if dtype.isnative else dtype.str


def line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
