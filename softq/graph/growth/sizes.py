"""Bounds of a value: on its axes, their lengths, and the numbers in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import onnx

ENDLESS = 1 << 62
"""Stands for every number that is greater."""

MOST_AXES = 32
"""More are looked at with caution."""


class Size(NamedTuple):
    """Bounds of one value.

    Attributes:
        low: Least number of axes.
        high: Greatest number of axes.
        least: Least length, of a value of one axis.
        dim: Greatest length of an axis that may be known.
        value: Greatest number in it that may be known.
    """

    low: int = 0
    high: int = 0
    least: int = 0
    dim: int = 0
    value: int = 0


NOTHING = Size()
"""Of a value of which nothing is known."""


def declare(declared: onnx.TypeProto, size: Size) -> Size:
    """Return the bounds of a value that the model says the type of."""
    if not declared.HasField("tensor_type"):
        return size if not declared.WhichOneof("value") else size._replace(high=size.high + 1)
    kind = declared.tensor_type
    if not kind.HasField("shape"):
        return size
    known = [d.dim_value for d in kind.shape.dim if d.HasField("dim_value")]
    rank, dim = len(kind.shape.dim), max(known, default=0)
    dim = dim if len(known) == rank else max(dim, size.dim)
    least = known[0] if rank == 1 and known else size.least if rank == 1 else 0
    return Size(rank, rank, least, dim, size.value)


def join(one: Size, other: Size) -> Size:
    """Return bounds that hold for either of two values."""
    return Size(*map(max, one, other))._replace(low=min(one.low, other.low), least=min(one.least, other.least))


def count_elements(size: Size) -> int:
    """Return how many elements a value has at most."""
    return multiply([size.dim] * size.high) if size.high <= MOST_AXES else ENDLESS


def multiply(numbers: Iterable[int]) -> int:
    """Return the product of numbers, those below 1 left out, or `ENDLESS`."""
    result = 1
    for number in numbers:
        result = min(result * max(1, number), ENDLESS)
    return result


def bound(number: int) -> int:
    """Return a number, or `ENDLESS`."""
    return min(number, ENDLESS)
