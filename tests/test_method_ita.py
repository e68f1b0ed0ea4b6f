"""ITA's softmax against Python integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.rowprog import DType, run
from softq.rowprog.ranges import prove
from tests.conformance import assert_conforms, program_of


def derivation(fraction: int, published: bool):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        shifts = [math.floor(Fraction(d, 2**fraction) + Fraction(1, 2)) for d in row]
        e = [math.floor(Fraction(256, 2**s)) for s in shifts]
        if not published:
            return e, sum(e)
        return [math.floor(Fraction(65280 // sum(e), 2**s)) for s in shifts], 256

    return derive


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("fraction", [0, 3, 5])
@pytest.mark.parametrize("output", ["pair", "uint8"])
def test_the_arithmetic(fraction: int, output: str) -> None:
    settings = {"fraction": fraction, "output": output}
    derive = derivation(fraction, output == "uint8")
    assert_conforms("ita", settings, derive, unit=math.log(2) / 2**fraction, native=fraction == 5)


def test_the_published_scale() -> None:
    # eps = B / (2^B log2 e) with B = 8: scores of that step are taken as they are.
    eps = 8 / (256 * math.log2(math.e))
    assert eps == pytest.approx(math.log(2) / 32, rel=1e-15)
    x = np.random.default_rng(0).integers(-128, 128, size=(50, 40)).astype(np.int8)
    given = run(program_of("ita", {"step": math.log(2) / 32}, DType.I8), x)
    as_it_is = run(program_of("ita", {}, DType.I8), x)
    np.testing.assert_array_equal(given["weights"], as_it_is["weights"])


def test_scores_of_another_step_are_multiplied_first() -> None:
    x = np.stack([np.full(256, 127), 127 - np.arange(256)], axis=1).astype(np.int8)
    weights = run(program_of("ita", {"fraction": 5, "step": 0.1}, DType.I8), x)["weights"][:, 1]
    d = np.minimum(np.floor(np.arange(256) * 0.1 * 32 / math.log(2) + 0.5), 255)
    np.testing.assert_array_equal(weights, 256 >> np.floor(d / 32 + 0.5).astype(np.int64))


@pytest.mark.parametrize("output", ["pair", "uint8"])
def test_nineteen_bits_hold_the_published_length(output: str) -> None:
    program = program_of("ita", {"output": output})
    proof = prove(program, max_length=2048)
    total = next(node for node in program.nodes() if node.op == "row_sum" and node.dtype is DType.U32)
    assert proof.filled[total].high == 2**19
