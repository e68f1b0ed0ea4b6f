"""Which softmax a runtime is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError

Array = NDArray[np.generic]

FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int8", "uint8", "int16")


@dataclass(frozen=True)
class Encoding:
    """What an integer stands for: `scale * (integer - zero_point)`.

    Attributes:
        dtype: NumPy's name of the integers.
        scale: What one unit is.
        zero_point: The integer that stands for 0.
    """

    dtype: str
    scale: float
    zero_point: int

    @property
    def low(self) -> int:
        """The least integer."""
        return int(np.iinfo(self.dtype).min)

    @property
    def high(self) -> int:
        """The greatest integer."""
        return int(np.iinfo(self.dtype).max)

    def decode(self, integers: Array) -> NDArray[np.float64]:
        """Return what integers stand for."""
        return (integers.astype(np.float64) - self.zero_point) * self.scale

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values in units of the scale, within the integers' range, not rounded."""
        return np.clip(values / self.scale + self.zero_point, self.low, self.high)


UNIT_RESULTS: Mapping[str, Encoding] = {
    "int8": Encoding("int8", 1 / 256, -128),
    "uint8": Encoding("uint8", 1 / 256, 0),
    "int16": Encoding("int16", 1 / 32768, 0),
}
"""How results from 0 to 1 are encoded as integers, by their type: TensorFlow Lite's specification has it so."""


@dataclass(frozen=True)
class Task:
    """One softmax.

    Attributes:
        shape: Of the scores and the result.
        axis: Along which it is taken, as the runtime gets it: it may be negative.
        dtype: NumPy's name of the scores' type, which floats have as their result.
        scores: What integer scores stand for; None for floats.
        result: What integer results stand for; None for floats.
        threads: How many threads the runtime may use.
    """

    shape: tuple[int, ...]
    axis: int
    dtype: str
    scores: Encoding | None = None
    result: Encoding | None = None
    threads: int = 1

    @property
    def result_dtype(self) -> str:
        """NumPy's name of the result's type."""
        return self.result.dtype if self.result is not None else self.dtype

    def to_plain(self) -> dict[str, Any]:
        """Return the task as values that JSON has."""
        return asdict(self) | {"shape": list(self.shape)}


def task_of(plain: Mapping[str, Any]) -> Task:
    """Return the task that `Task.to_plain` gave."""
    encodings = {name: None if plain[name] is None else Encoding(**plain[name]) for name in ("scores", "result")}
    return Task(tuple(plain["shape"]), plain["axis"], plain["dtype"], **encodings, threads=plain["threads"])


def check_dtype(dtype: str, allowed: tuple[str, ...], runtime: str) -> None:
    """Refuse scores of a type that a runtime does not take.

    Raises:
        UsageError: it does not.
    """
    if dtype not in allowed:
        raise UsageError(f"runtime {runtime} takes scores of {', '.join(allowed)}, not of {dtype!r}")
