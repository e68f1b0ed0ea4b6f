"""The pieces that methods share, against float64 and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from softq.errors import UsageError
from softq.rowprog import DType, Trace, Value, run
from softq.rowprog.library import EXP_LIMIT, LOG2_E, distance, exp_minus, rounded_multiple


def _run_row(t: Trace, row: Value, x: np.ndarray) -> np.ndarray:
    return run(t.program(weights=row, normalizer=t.length()), x)["weights"]


def test_exp_minus_keeps_its_stated_bound() -> None:
    t = Trace("exp")
    d = np.linspace(0, EXP_LIMIT, 2_000_001).astype(np.float32)
    got = _run_row(t, exp_minus(t, t.scores), d).astype(np.float64)
    exact = np.exp(-d.astype(np.float64))
    assert np.max(np.abs(got / exact - 1)) <= 1e-7
    assert np.all(got >= np.finfo(np.float32).tiny)  # never subnormal


def test_exp_minus_of_special_values() -> None:
    t = Trace("exp")
    beyond = np.nextafter(np.float32(EXP_LIMIT), np.float32(np.inf))
    d = np.array([0, -0.0, np.inf, np.nan, beyond, np.finfo(np.float32).max], np.float32)
    assert _run_row(t, exp_minus(t, t.scores), d).tolist() == [1, 1, 0, 1, 0, 0]


def test_distance_leaves_masked_elements_infinitely_far() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    x = np.array([[3, 1, 7], [-inf, 2, 1], [-inf, -inf, -inf], [inf, inf, 0], [3.4e38, -3.4e38, 0]], np.float32)
    valid = np.array([[True, True, False], [True] * 3, [True] * 3, [True] * 3, [True] * 3])
    t = Trace("distance", masked=True)
    d = distance(t)
    got = run(t.program(weights=d.row, normalizer=t.select(d.is_nan, t.const(1.0, DType.F32), 0.0)), x, valid=valid)
    expected = np.array(
        [[0, 2, inf], [inf, 0, 1], [inf, inf, inf], [nan, nan, inf], [0, inf, np.float32(3.4e38)]], np.float32
    )
    np.testing.assert_array_equal(got["weights"], expected)
    np.testing.assert_array_equal(got["normalizer"][:, 0], [0, 0, 0, 0, 0])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_distance_finds_a_nan_anywhere_but_under_the_mask(at: int) -> None:
    x = np.array([1, 2, 3], np.float32)
    x[at] = np.nan
    for hidden in (False, True):
        valid = np.ones(3, np.bool_)
        valid[at] = not hidden
        t = Trace("distance", masked=True)
        d = distance(t)
        got = run(t.program(weights=d.row, normalizer=t.select(d.is_nan, t.const(1.0, DType.F32), 0.0)), x, valid=valid)
        assert got["normalizer"].item() == (0.0 if hidden else 1.0)


@pytest.mark.parametrize("factor", [1e-6, 0.01, 0.1 * LOG2_E, 0.5, 1.0, 3.75, 1000.0])
def test_rounded_multiple_is_exact_but_at_ties(factor: float) -> None:
    t = Trace("multiple", scores=DType.I32)
    a = np.arange(256, dtype=np.int32)
    got = _run_row(t, rounded_multiple(t, t.scores, factor, 255), a)
    for value, result in zip(a.tolist(), got.tolist(), strict=True):
        exact = value * Fraction(factor)
        assert abs(result - exact) <= Fraction(1, 2) + value * Fraction(factor) * Fraction(1, 2**20)


def test_rounded_multiple_refuses_a_factor_that_does_not_fit() -> None:
    t = Trace("multiple", scores=DType.I32)
    with pytest.raises(UsageError, match="allowed is below"):
        rounded_multiple(t, t.scores, 2.0**24, 255)
