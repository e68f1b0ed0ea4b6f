"""Programs that divide: the same numbers as the quotient of the pair."""

from __future__ import annotations

import numpy as np
import pytest

from softq.methods import METHODS
from softq.rowprog import DType, run
from softq.rowprog.program import quotient


@pytest.mark.parametrize("name", ["exact", "deferred-log"])
def test_probabilities_are_the_quotient_of_the_pair(name: str) -> None:
    method = METHODS.get(name)
    program = method.program(method.resolve(method.configure({}), False))
    x = (np.random.default_rng(0).normal(size=(50, 77)) * 4).astype(np.float32)
    x[3], x[4, 5] = -np.inf, np.nan
    pair, found = run(program, x), run(quotient(program), x)["probabilities"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = pair["weights"].astype(np.float64) / pair["normalizer"].astype(np.float64)
    assert np.isnan(found[3:5]).all()
    # One rounding of the reciprocal and one of the product.
    np.testing.assert_allclose(found, expected, rtol=2.0**-23, atol=0)


def test_a_program_without_a_pair_stays() -> None:
    method = METHODS.get("exact")
    divided = quotient(method.program(method.configure({}), scores=DType.F32))
    assert quotient(divided) is divided
