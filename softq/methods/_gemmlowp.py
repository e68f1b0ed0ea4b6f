"""Fixed-point arithmetic of gemmlowp (github.com/google/gemmlowp, 16e8662), as TensorFlow Lite's softmax uses it.

Of Python integers, for tables that are made while tracing, and a product of traced values too. Qm.n has m integer bits
and n fraction bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from softq.rowprog import Value

_EXP_ONE_EIGHTH = 1895147668  # e^-(1/8), Q0.31
_ONE_THIRD = 715827883  # Q0.31
# e^-(1/4), e^-(1/2), e^-1 to e^-16, Q0.31.
_EXP_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
SCALED_FRACTION = 26
"""Fraction bits of a distance, Q5.26."""

Number = TypeVar("Number", int, Value)


def high_product(a: Number, b: Number) -> Number:
    """Return a * b / 2^31, half up: the saturating rounding doubling high product, but for -2^31 * -2^31."""
    return (a * b + (1 << 30)) >> 31


def rounding_shift(a: int, bits: int) -> int:
    """Return a / 2^bits, half away from 0."""
    half = 1 << bits >> 1
    return (a + half) >> bits if a >= 0 else -((half - a) >> bits)


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """Return (m, s) with factor = m / 2^31 * 2^s, m in [2^30, 2^31)."""
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    return (multiplier >> 1, shift + 1) if multiplier == 1 << 31 else (multiplier, shift)


def exp_of_negative(a: int) -> int:
    """Return e^a in Q0.31 of a <= 0 in Q5.26; 2^31 - 1 for 0."""
    if a == 0:
        return 2**31 - 1
    quarter = 1 << (SCALED_FRACTION - 2)
    near = (a & (quarter - 1)) - quarter  # in [-1/4, 0)
    x = (near << 5) + (1 << 28)  # from -1/8 on, Q0.31
    x2 = high_product(x, x)
    x3, x4 = high_product(x2, x), high_product(x2, x2)
    tail = rounding_shift(high_product(rounding_shift(x4, 2) + x3, _ONE_THIRD) + x2, 1)
    result = _EXP_ONE_EIGHTH + high_product(_EXP_ONE_EIGHTH, x + tail)
    for bit, power in enumerate(_EXP_POWERS):
        if (near - a) >> (SCALED_FRACTION - 2 + bit) & 1:
            result = high_product(result, power)
    return result


def exponentials(step: float, count: int) -> list[int]:
    """Return e^-(step d), Q0.31, for d = 0 to count - 1; 0 from where the distance leaves Q5.26.

    The step is first rounded to f32, as a model file holds it.
    """
    multiplier, shift = quantize_multiplier(min(float(np.float32(step)) * 2.0**SCALED_FRACTION, 2.0**31 - 1))
    radius = (31 << SCALED_FRACTION) >> shift
    return [exp_of_negative(high_product(-(d << shift), multiplier)) if d <= radius else 0 for d in range(count)]


TABLE_STEPS = 512


def interpolation_table(function: Callable[[float], float], low: float, high: float) -> list[int]:
    """Return 513 entries of a function of [low, high] with values in [0, 1], Q0.15, for interpolation between them.

    Each entry is lessened by half the error that a chord has in the middle of its interval. Roundings are half up.
    Computed in double precision: in f32 an entry differs from the interpreter's.
    """

    def nearest(value: float) -> int:
        return math.floor(value + 0.5)

    def at(place: float) -> float:
        return function(low + place * (high - low) / TABLE_STEPS) * 2**15

    table: list[int] = []
    for i in range(TABLE_STEPS):
        sample = nearest(at(i))
        error = nearest((at(i + 1) + sample) / 2) - nearest(at(i + 0.5))
        table.append(min(sample - rounding_shift(error, 1), 2**15 - 1))
    return [*table, min(nearest(at(TABLE_STEPS)), 2**15 - 1)]
