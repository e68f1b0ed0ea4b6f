"""How a kernel is started, as sizes: Python and a driver in C compute the same ones of a call's dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from softq.artifact.program import Op, Size, evaluate

MOST_BLOCKS = 2**31 - 1
"""Most blocks of a launch along its first axis (CUDA C++ Programming Guide, technical specifications)."""


@dataclass(frozen=True)
class Range:
    """A condition: the size is at least `low` and at most `high`."""

    size: Size
    low: int
    high: int

    def holds(self, dims: Mapping[str, int]) -> bool:
        """Say whether it does for these dimensions."""
        return self.low <= evaluate(self.size, dims) <= self.high


@dataclass(frozen=True)
class Start:
    """One way to start a kernel.

    Attributes:
        symbol: Its name.
        threads: Threads per block.
        blocks: How many blocks.
        when: What must hold.
        shared: Bytes of dynamic shared memory per block, which the device has to have.
    """

    symbol: str
    threads: int
    blocks: Size
    when: tuple[Range, ...] = ()
    shared: int = 0


@dataclass(frozen=True)
class Number:
    """A number that a kernel gets behind its tensors."""

    dtype: Literal["int32", "int64"]
    size: Size


def over(size: Size, each: int) -> Size:
    """Return a size divided by `each`, rounded up."""
    return size if each == 1 else Op("floordiv", Op("add", size, each - 1), each)


def multiple(size: Size, of: int) -> Range:
    """Return the condition that a size is a multiple."""
    return Range(Op("floormod", size, of), 0, 0)
