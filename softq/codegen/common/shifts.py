"""Lookup tables that are shifts of one number: a shift by the code takes the place of the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softq.rowprog.program import Number

_LEAST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class Shift:
    """entry[c] = (first >> c) * scale.

    Attributes:
        first: The unsigned number that is shifted.
        bits: Width of the unsigned type, 32 or 64.
        scale: Power of two that the shifted number is multiplied with.
    """

    first: int
    bits: int
    scale: float


def as_shift(values: Sequence[Number]) -> Shift | None:
    """Return the shift that gives every entry exactly, or None."""
    if any(isinstance(value, bool) or not 0 <= value < math.inf or math.copysign(1, value) < 0 for value in values):
        return None
    mantissa, exponent = math.frexp(min((value for value in values if value > 0), default=0))
    scale = 1.0 if all(isinstance(value, int) for value in values) else math.ldexp(1.0, exponent - 1)
    if scale != 1.0 and (mantissa != 0.5 or scale < _LEAST_NORMAL):
        return None  # the least entry of a table of shifts is a power of two; some runtimes take subnormals for 0
    first = values[0] / scale if scale != 1.0 else values[0]
    # A float carries the shifted number exactly only if it is a power of two or below 2^24.
    if first != int(first) or (scale != 1.0 and math.frexp(first)[0] != 0.5):
        return None
    for bits in (32, 64):
        if 0 < first < 2**bits and len(values) <= bits:
            exact = all(value == (int(first) >> c) * scale for c, value in enumerate(values))
            return Shift(int(first), bits, scale) if exact else None
    return None
