"""Closed forms of lookup tables: what a table computes, where that can be said exactly.

In onnxruntime 1.31 a lookup by GatherElements takes 1.9 times as long as the float Softmax of the same scores, a shift
1.8 times and an exponential 2.3 times (one thread, [1, 9, 512, 512]); by Gather it takes 26 times as long. Closed forms
are for runtimes whose lookups are slow, accelerators above all. One is used only if it gives every
entry of the table exactly, on any runtime: a shift does, and an exponential does where rounding leaves it no choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from softq.rowprog.program import Number

_EXP_ERROR = 2.0**-18
"""Relative error allowed to a runtime's Exp, argument included: 32 units in the last place of a float32."""


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


@dataclass(frozen=True)
class Exponential:
    """entry[c] = rint(first * e^(-rate * c)) for c < end, and 0 from there on."""

    first: float
    rate: float
    end: int


def closed_form(values: Sequence[Number]) -> Shift | Exponential | None:
    """Return a closed form that gives every entry exactly, or None."""
    if any(isinstance(value, bool) or not 0 <= value < math.inf or math.copysign(1, value) < 0 for value in values):
        return None
    return _shift(values) or _exponential(values)


def _shift(values: Sequence[Number]) -> Shift | None:
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


def _exponential(values: Sequence[Number]) -> Exponential | None:
    end = next((c for c, value in enumerate(values) if value == 0), len(values))
    if end < 2 or min(values) < 0 or any(values[end:]) or not all(isinstance(value, int) for value in values):
        return None
    first = float(values[0])
    # Rounding the exponential to an integer, and that integer to a float, must both be exact.
    if first < 1 or first >= 2**24:
        return None
    # The entry that is rounded least, relatively, tells the rate best; every entry is checked below.
    low, high = 0.0, math.inf
    for c in range(1, end):
        low = max(low, math.log(first / (values[c] + 0.5)) / c)
        high = min(high, math.log(first / (values[c] - 0.5)) / c)
    if not low < high < math.inf:
        return None
    rate = (low + high) / 2
    for c in range(end):
        exact = first * math.exp(-rate * c)
        if not all(round(exact * (1 + error)) == values[c] for error in (-_EXP_ERROR, 0.0, _EXP_ERROR)):
            return None
    return Exponential(first, rate, end)
