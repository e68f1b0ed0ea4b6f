"""FQ-ViT's Log-Int-Softmax against Python integers that divide and take logarithms as the paper writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.rowprog import DType, run
from softq.rowprog.ranges import prove
from tests.conformance import assert_conforms, program_of
from tests.test_method_i_exp import exponent, pair


def published(step: float) -> list[int]:
    """The exponential of every 8-bit distance."""
    found = [exponent(d, step, 30) for d in range(256)]
    return [m * 2 ** (30 - z) for m, z, _ in found]


def narrow(step: float) -> list[int]:
    return [pair(step, 15)([d])[0][0] for d in range(256)]


def derivation(exps: Sequence[int], bits: int):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        e = [exps[d] for d in row]
        weights: list[int] = []
        for value in e:
            ratio = round(Fraction(sum(e), value)) if value else 2**40  # half to even, as torch.round
            code = len(f"{ratio:b}") - 1
            code += ratio - 2**code >= 2.0 ** (code - 1)
            weights.append(0 if code >= 2**bits else 2 ** (2**bits - 1 - code))
        return weights, 2 ** (2**bits - 1)

    return derive


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize(("arithmetic", "step"), [("int32", 0.0625), ("int64", 0.0625), ("int64", 2.0**-7)])
def test_codes(bits: int, arithmetic: str, step: float) -> None:
    exps = narrow(step) if arithmetic == "int32" else published(step)
    settings = {"bits": bits, "arithmetic": arithmetic, "step": step}
    assert_conforms("log-int", settings, derivation(exps, bits), unit=step, native=bits == 4 and step == 0.0625)


def test_float_scores_without_a_step() -> None:
    step = math.log(2) / 12
    assert_conforms("log-int", {}, derivation(narrow(step), 4), unit=step, kinds=(DType.F32,), native=False)


def test_what_fits() -> None:
    program = program_of("log-int", {}, masked=True)
    assert prove(program, max_length=65536).widest_bits <= 32
    assert prove(program_of("log-int", {"arithmetic": "int64", "step": 2.0**-7}, DType.I8)).widest_bits <= 63


def test_a_ratio_between_two_and_three_goes_to_the_even_one() -> None:
    # The third lies one octave below the two others, exactly: its weight is half of theirs, and their ratio 2.5.
    step = math.log(2) / 12
    weights = run(program_of("log-int", {"step": step}, DType.I8), np.array([[100, 100, 88]], np.int8))["weights"]
    assert weights.tolist() == [[2**14, 2**14, 2**13]]  # codes 1 and 2: of 2.5 rounded to 2, and of 5
