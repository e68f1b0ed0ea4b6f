"""Sums of floats as whole numbers: of entries of a table, the greatest of which every row holds.

Entries are rounded once to 32 bits below the greatest one, and then summed exactly: to 2^-33 of it for each element,
which is nearer to the exact sum than a float sum of as many elements in any order is sure to be, since the sum is no
less than the entry that the row holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.rowprog.program import Node, table_of
from softq.rowprog.types import DType

_BITS = 32


@dataclass(frozen=True)
class FixedPoint:
    """A table of floats as whole numbers.

    Attributes:
        values: The entries, below 2^32.
        scale: What one unit is, a power of two.
    """

    values: tuple[int, ...]
    scale: float


def as_fixed(node: Node) -> FixedPoint | None:
    """Return the entries that a sum takes in as whole numbers; None if it is no such sum."""
    arg = node.args[0]
    if node.op != "row_sum" or arg.dtype is not DType.F32 or arg.op != "lut" or arg.args[0].op != "table":
        return None
    values = [float(v) for v in table_of(arg.args[0])]
    if not all(0 <= v < math.inf for v in values) or not 2.0**-60 <= max(values) <= 2.0**60:
        return None
    if values[0] != max(values) or not _begins(arg.args[1]):
        return None
    places = _BITS - math.frexp(max(values))[1]
    return FixedPoint(tuple(round(math.ldexp(v, places)) for v in values), math.ldexp(1.0, -places))


def _begins(at: Node) -> bool:
    """Say whether each row has an element at position 0: the distance from the row's own maximum."""
    at = _plain(at)
    if at.op != "sub":
        return False
    greatest, x = _plain(at.args[0]), _plain(at.args[1])
    return greatest.op == "row_max" and _plain(greatest.args[0]) is x


def _plain(node: Node) -> Node:
    while node.op == "cast" and node.dtype.is_integer and node.args[0].dtype.is_integer:
        node = node.args[0]
    return node
