"""Arrays and what is said of them without their values: names, types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from softq.errors import InputError

Array: TypeAlias = npt.NDArray[np.generic]

LABEL = "label."
"""Prefix that marks an array as a label; the label's name is what follows."""

SHARED = "shared."
"""Prefix that marks an array that is the same for all samples; the name of the model's input follows."""


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
