"""I-ViT's Shiftmax against Python integers with the paper's signs, and against exp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from softq.errors import ProofError, UsageError
from softq.methods.shiftmax import shift_of
from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length, prove
from tests.conformance import assert_conforms, program_of


@cache
def exponent(d: int, step: float, n: int, kept: bool) -> int:
    x0 = math.floor(-1 / Fraction(step))
    x = -d
    x = x + math.floor(Fraction(x, 2)) - math.floor(Fraction(x, 16))
    x = max(x, n * x0) if kept else x
    z = math.floor(Fraction(x, x0))
    r = x - x0 * z
    return max(math.floor((Fraction(r, 2) - x0) * Fraction(2) ** (n - z)), 0)


def derivation(step: float, n: int, kept: bool = False, bits: int = 0):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        e = [exponent(d, step, n, kept) for d in row]
        if not bits:
            return e, sum(e)
        assert sum(e) < 2**31
        factor = (2**31 - 1) // sum(e)
        return [math.floor(Fraction(v * factor, 2 ** (31 - bits + 1))) for v in e], 2 ** (bits - 1)

    return derive


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("far", ["zero", "kept"])
@pytest.mark.parametrize(
    ("step", "length", "n"), [(0.0625, 65536, 10), (0.06, 197, 15), (1.0, 65536, 14), (2.0**-12, 256, 10)]
)
def test_weights(step: float, length: int, n: int, far: str) -> None:
    settings = {"step": step, "length": length, "far": far}
    derive = derivation(step, n, far == "kept")
    assert_conforms("shiftmax", settings, derive, unit=step, native=step == 0.0625, max_length=length)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("output", "bits"), [("int16", 16), ("int8", 8)])
@pytest.mark.parametrize("length", [197, 65536])
def test_published_formats(output: str, bits: int, length: int) -> None:
    settings = {"step": 0.0625, "length": length, "far": "kept", "output": output}
    derive = derivation(0.0625, 15 if length == 197 else 10, True, bits)
    assert_conforms("shiftmax", settings, derive, unit=0.0625, native=length == 197, max_length=length)


def test_the_shift_is_the_greatest_that_fits() -> None:
    for length in (1, 197, 1560, 3120, 4096, 65536):
        for q in (1, 2, 16, 20, 50, 1000):
            n = shift_of(length, q)
            assert length * q * 2**n < 2**31
            assert n == 15 or length * q * 2 ** (n + 1) >= 2**31
    with pytest.raises(UsageError, match=r"shiftmax: rows of 1048576 elements with 1 / step of 4096"):
        shift_of(2**20, 4096)


@pytest.mark.parametrize("output", ["pair", "int16", "int8"])
def test_the_length_asked_for_is_proved_and_not_much_more(output: str) -> None:
    for kind in (DType.F32, DType.I8):
        program = program_of("shiftmax", {"length": 3000, "step": 0.05, "output": output}, kind, masked=True)
        assert prove(program, max_length=3000).widest_bits <= 32
    program = program_of("shiftmax", {"length": 3000, "step": 0.05})
    assert 3000 <= largest_length(program) <= 4 * 3277
    with pytest.raises(ProofError, match="shiftmax"):
        prove(program, max_length=2**17)


def test_the_exponential_is_within_its_bound() -> None:
    for bits, bound in ((8, 0.065), (12, 0.046)):
        d = np.arange(2**bits) * 16 / 2**bits
        x = np.stack([np.zeros(len(d)), -d], axis=1).astype(np.float32)
        weights = run(program_of("shiftmax", {"bits": bits, "length": 2}), x)["weights"].astype(np.float64)
        found = weights[:, 1] / weights[:, 0]
        assert 0.9 * bound < np.max(np.abs(found - np.exp(-d))) <= bound
