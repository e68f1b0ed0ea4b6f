"""I-BERT's integer exponential against Python integers, its published and its 32-bit form, and against exp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from softq.errors import ProofError, UsageError
from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length, prove
from tests.conformance import assert_conforms, program_of

LN2 = math.log(2)
A = Fraction(35815147, 10**8)


@cache
def exponent(d: int, step: float, octaves: int) -> tuple[int, int, int]:
    """I-BERT's int_exp with its own signs: X <= 0, x0 < 0; returns (polynomial, z, C)."""
    s = Fraction(step)
    x0 = math.floor(Fraction(-6931, 10**4) / s)
    x = max(-d, octaves * x0)
    z = x // x0  # both are negative or 0
    r = x - x0 * z
    assert x0 < r <= 0
    b, c = math.floor(Fraction(96963238, 10**8) / A / s), math.floor(1 / A / s**2)
    return r * (r + b) + c, z, c


def pair(step: float, width: int):
    @cache
    def weight(d: int) -> int:
        m, z, c = exponent(d, step, 10**6)
        k = width - len(f"{c:b}")
        return math.floor(m * Fraction(2) ** (k - z))

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        return [weight(d) for d in row], sum(weight(d) for d in row)

    return derive


def published(step: float):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        exps: list[int] = []
        for d in row:
            m, z, c = exponent(d, step, 30)
            full = m * 2 ** (30 - z)
            exps.append(math.floor(Fraction(full * 32767, c * 2**30) + Fraction(1, 2)))
        factor = 2**32 // sum(exps)
        return [min(e * factor // 2**24, 255) for e in exps], 256

    return derive


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("step", "width"), [(0.0625, 15), (0.05, 15), (1.0, 15), (2.0**-10, 8), (0.02, 24)])
def test_the_form_in_32_bits(step: float, width: int) -> None:
    settings = {"step": step, "weight_bits": width}
    fits = 200 if width == 24 else 65536
    derive = pair(step, width)
    assert_conforms("i-exp", settings, derive, unit=step, native=step in (0.05, 2.0**-10), max_length=fits)


@pytest.mark.parametrize("step", [0.0625, 2.0**-10, 1.0])
def test_the_published_form(step: float) -> None:
    assert_conforms("i-exp", {"step": step, "output": "uint8"}, published(step), unit=step, native=step == 0.0625)


@pytest.mark.parametrize(("bits", "octave"), [(4, 1), (8, 12), (12, 178)])
def test_float_distances_without_a_step(bits: int, octave: int) -> None:
    largest, derive = 2**bits - 1, pair(LN2 / octave, 15)
    assert_conforms("i-exp", {"bits": bits}, derive, unit=LN2 / octave, largest=largest, kinds=(DType.F32,),
                    native=False)  # fmt: skip


@pytest.mark.parametrize(
    ("step", "bound"), [(LN2 / 12, 9.8e-3), (0.0625, 0.028), (2.0**-8, 3.3e-3), (2.0**-12, 2.0e-3)]
)
def test_the_exponential_is_within_its_bound(step: float, bound: float) -> None:
    d = np.arange(4096)
    x = np.stack([np.zeros(len(d)), -d * step], axis=1).astype(np.float32)
    weights = run(program_of("i-exp", {"bits": 12, "step": step, "weight_bits": 24}), x)["weights"].astype(np.float64)
    assert np.max(np.abs(weights[:, 1] / weights[:, 0] - np.exp(-d * step))) <= bound


def test_all_of_it_fits_32_bits_up_to_the_stated_length() -> None:
    for step in (2.0**-12, 0.001, 0.0625, 1.0):
        for kind in (DType.F32, DType.I8):
            program = program_of("i-exp", {"step": step, "bits": 12}, kind, masked=True)
            assert prove(program, max_length=2**17).widest_bits <= 32
    program = program_of("i-exp", {"weight_bits": 24}, masked=True)
    assert 2**8 <= largest_length(program) < 2**9
    with pytest.raises(ProofError, match=r"i-exp.*row_sum"):
        prove(program)


def test_integer_scores_need_a_step() -> None:
    with pytest.raises(UsageError, match="step above 0"):
        program_of("i-exp", {}, DType.I8)
