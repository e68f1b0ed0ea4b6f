"""Softermax against Python integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.methods.softermax import power_table
from softq.rowprog import DType
from softq.rowprog.ranges import largest_length
from tests.conformance import assert_conforms, program_of

HALF = Fraction(1, 2)
# 2^15 times the first, second and third fourth root of 2, by integer square roots.
QUARTERS = [
    32768,
    round(Fraction(math.isqrt(math.isqrt(2 * 2**240)), 2**45)),
    round(Fraction(math.isqrt(2 * 2**120), 2**45)),
    round(Fraction(math.isqrt(math.isqrt(8 * 2**240)), 2**45)),
]


def test_the_table() -> None:
    assert QUARTERS == [32768, 38968, 46341, 55109]
    assert power_table(2) == QUARTERS
    assert power_table(1) == [32768, 46341]
    assert power_table(0) == [32768]
    # Between the ends on chords: above the power, by the docstring's bound.
    fine = np.array(power_table(4)) / 2**15 / 2 ** (np.arange(16) / 16) - 1
    assert np.all(fine > -(2.0**-16))
    assert 3.7e-3 < np.max(fine) <= 3.8e-3


def reciprocal(mantissa: Fraction) -> Fraction:
    """1 / mantissa on the chords of eight segments of [1, 2), in Q1.7."""
    k = math.floor((mantissa - 1) * 8)
    start, end = (round(2**15 / (1 + Fraction(j, 8))) for j in (k, k + 1))
    rest = math.floor(((mantissa - 1) * 8 - k) * 256)
    fine = start - math.floor(Fraction((start - end) * rest, 256))
    return Fraction(math.floor(Fraction(fine, 256) + HALF), 128)


def derivation(bits: int, published: bool):
    steps = 2 ** (bits - 6)
    table = power_table(bits - 6)

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        w = [table[-d % steps] >> -(-d // steps) for d in row]
        if not published:
            return w, sum(w)
        total = Fraction(min(math.floor(Fraction(sum(w), 2**9) + HALF), 2**16 - 1), 2**6)
        s = 0
        while total / 2**s >= 2:
            s += 1
        r = reciprocal(total / 2**s)
        return [math.floor(Fraction(v, 2**15) * r / 2**s * 128 + HALF) for v in w], 128

    return derive


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("bits", [6, 8, 10])
@pytest.mark.parametrize("output", ["pair", "uint8"])
@pytest.mark.parametrize("base", ["e", "2"])
def test_the_arithmetic(bits: int, output: str, base: str) -> None:
    unit = 2.0 ** (6 - bits) * (math.log(2) if base == "e" else 1)
    settings = {"bits": bits, "output": output, "base": base}
    derive, largest = derivation(bits, output == "uint8"), min(2**bits - 1, 255)
    assert_conforms("softermax", settings, derive, unit=unit, largest=largest, native=(bits, base) == (8, "e"))


def test_the_stated_length() -> None:
    for kind in (DType.F32, DType.I8):
        assert largest_length(program_of("softermax", {}, kind), 2**18) == 2**17 - 1
