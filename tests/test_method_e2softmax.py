"""E2Softmax against Python integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length
from tests.conformance import assert_conforms, program_of

HALF = Fraction(1, 2)


def derivation(fraction: int, bits: int, published: bool):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        y = [d + math.floor(Fraction(d, 2)) - math.floor(Fraction(d, 16)) for d in row]
        k = [min(math.floor(Fraction(v, 2**fraction) + HALF), 2**bits - 1) for v in y]
        if not published:
            return [2 ** (15 - e) for e in k], sum(2 ** (15 - e) for e in k)
        total = sum(Fraction(1, 2**e) for e in k)
        s = 0
        while total / 2**s >= 2:
            s += 1
        # The constants with 15 fraction bits.
        c = Fraction(26804 if total / 2**s - 1 < HALF else 18612, 2**15)
        return [min(math.floor(c / 2 ** (e + s) * 256 + HALF), 255) for e in k], 256

    return derive


def test_the_constants() -> None:
    assert (round(0.818 * 2**15), round(0.568 * 2**15)) == (26804, 18612)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("fraction", "bits"), [(4, 4), (1, 4), (8, 3), (5, 2)])
@pytest.mark.parametrize("output", ["pair", "uint8"])
def test_the_arithmetic(fraction: int, bits: int, output: str) -> None:
    settings = {"fraction": fraction, "bits": bits, "output": output}
    derive = derivation(fraction, bits, output == "uint8")
    assert_conforms("e2softmax", settings, derive, unit=2.0**-fraction, native=fraction == 4)


def test_the_published_division_is_within_its_bound() -> None:
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 128, size=(2000, 9)) / 16).astype(np.float32)
    pair, codes = (run(program_of("e2softmax", {"output": o}), x) for o in ("pair", "uint8"))
    p = pair["weights"].astype(np.float64) / pair["normalizer"].astype(np.float64)
    seen = p > 0.1
    error = np.abs(codes["weights"].astype(np.float64) / 256 - p)[seen] - 0.5 / 256
    assert np.max(error / p[seen]) <= 0.23
    assert 0.04 < np.mean(np.maximum(error, 0) / p[seen]) < 0.11


def test_the_stated_length() -> None:
    for kind in (DType.F32, DType.I8):
        assert largest_length(program_of("e2softmax", {}, kind), 2**18) == 2**17 - 1
