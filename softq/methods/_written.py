"""What a method is shown of a function that a graph writes out, to say with which options it would be the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

WrittenSettings = Mapping[str, int | float | str | tuple[float, ...]]
"""Options by name, the others keeping their defaults; several numbers are one per head."""

Written = Callable[["Function"], Iterable[WrittenSettings]]
"""Returns settings with which a method might be a function, the likeliest first; they are checked by whoever asks."""


@dataclass(frozen=True)
class Function:
    """A function of a row, to be asked for its values.

    Attributes:
        length: Elements of the rows that it takes, at least 3.
        evaluate: The function of rows [R, N], for each head [heads, R, N]; 1 head where all are the same.
        numbers: Constants of the graph that it is written with: each one number, or one per head.
    """

    length: int
    evaluate: Callable[[Rows], Rows]
    numbers: tuple[Rows, ...] = ()

    def of(self, *first: float, rest: float = 0.0) -> Rows:
        """Return the function of a row that begins with these scores and goes on with `rest`, [heads, N]."""
        row = np.full((1, self.length), rest)
        row[0, : len(first)] = first
        return self.evaluate(row)[:, 0]


def plain(value: float) -> float:
    """Return the shortest decimal that is the same f32: what was written where a graph holds its nearest f32."""
    return float(str(np.float32(value)))


def small(value: float) -> float:
    """Return a number that is added to a sum, to five digits; 0 where it is nothing but rounding."""
    return plain(float(f"{value:.5g}")) if value > 1e-16 else 0.0


def collapse(values: Rows) -> float | tuple[float, ...]:
    """Return one number where all heads have the same, else one per head."""
    if np.ptp(values) <= 1e-7 * np.abs(values).max():
        return plain(values[0])
    return tuple(plain(value) for value in values.tolist())
