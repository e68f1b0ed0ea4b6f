"""log2 with FQ-ViT's threshold against its integer logarithm in plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from softq.methods import METHODS
from softq.rowprog import run
from softq.rowprog.onnx import to_model
from tests.rowhost import session
from tests.test_methods import default_program, hard_scores, softmax64

METHOD = METHODS.get("log2")


def integer_logarithm(ratio: int) -> int:
    """FQ-ViT's: the greatest power of two in the ratio, one more from half-way to the next."""
    code = ratio.bit_length() - 1
    return code + (ratio - 2**code >= 2 ** (code - 1) if code else 0)


def code_of(p: float, top: int) -> int:
    return min(integer_logarithm(round(1 / Fraction(p))), top) if p > 0 else top


@pytest.mark.parametrize("zero", ["code", "beyond"])
@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_the_threshold_of_the_integer_logarithm(bits: int, zero: str) -> None:
    x = hard_scores()[::12]
    out = run(default_program(METHOD, bits=bits, threshold="ratio", zero=zero), x)
    top = 2**bits - (zero == "code")
    p = softmax64(x)
    for (row, at), code in np.ndenumerate(out["codes"].astype(int)):
        here = float(p[row, at])
        if code != code_of(here, top):  # only where float32's p lies on the other side of a border
            assert code_of(here * (1 - 2e-5), top) <= code <= code_of(here * (1 + 2e-5), top) or (
                code_of(here * (1 + 2e-5), top) <= code <= code_of(here * (1 - 2e-5), top)
            )
    decoded = np.where(out["codes"] == top, 0.0, 2.0 ** -out["codes"].astype(np.float64))
    np.testing.assert_array_equal(out["probabilities"], decoded)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 11, 12, 47, 48, 3071, 3072, 12287, 12288, 49151])
def test_every_border_is_exact(length: int) -> None:
    # N equal scores have the ratio N: the codes begin at 2, 3, 6, 12, ..., 12288.
    x = np.zeros((1, length), np.float32)
    program = default_program(METHOD, bits=4, threshold="ratio", zero="beyond")
    expected = min(integer_logarithm(length), 16)
    assert np.unique(run(program, x)["codes"]).tolist() == [expected]
    host = session(to_model(program, outputs=["codes"]))
    assert np.unique(np.asarray(host.run(None, {"scores": x})[0])).tolist() == [expected]


def test_it_is_the_default_that_rounds_the_logarithm() -> None:
    # The ratio 1.45: its logarithm is above one half, but it is rounded to 1. The ratio 2.9, rounded to 3, is code 2.
    x = np.log(np.array([[1.0, 0.45], [0.1, 0.19]])).astype(np.float32)
    assert run(default_program(METHOD, bits=4), x)["codes"][0, 0] == 1
    assert run(default_program(METHOD, bits=4, threshold="ratio"), x)["codes"].tolist() == [[0, 2], [2, 1]]
