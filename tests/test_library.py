"""The pieces that methods share, against float64 and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from softq.errors import UsageError
from softq.rowprog import DType, Trace, Value, run
from softq.rowprog.library import EXP_LIMIT, LOG2_E, distance, exp_minus, integer_distance, rounded_multiple


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


def _integer_distances(
    x: np.ndarray, unit: float, step: float = 0.0, valid: np.ndarray | None = None
) -> list[np.ndarray]:
    kind = {"float32": DType.F32, "int8": DType.I8, "uint8": DType.U8}[x.dtype.name]
    t = Trace("distance", scores=kind, masked=valid is not None)
    d = integer_distance(t, unit, 100, step)
    weights = d.weigh(d.row + 1)
    total = t.row_sum(weights)
    program = t.program(weights=weights, normalizer=d.normalizer(total), row=d.row, one=d.one(total, 9))
    out = run(program, x, valid=valid)
    return [out[name] for name in ("row", "weights", "normalizer", "one")]


def test_integer_distance_of_floats_and_their_special_values() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[3, 1, 2.75, 0.875], [inf, 1, inf, -inf], [-inf] * 4, [1, nan, 2, 3], [90, -90, 3e38, 2],
                  [4, -99.75, -100, -1e4]], np.float32)  # fmt: skip
    row, weights, normalizer, one = _integer_distances(x, 0.25)
    # 2.125 / 0.25 = 8.5 is rounded to even.
    assert row[0].tolist() == [0, 8, 1, 8]
    assert weights[0].tolist() == [1, 9, 2, 9]
    assert row[1].tolist() == [0, 100, 0, 100]
    assert weights[1].tolist() == [1, 0, 1, 0]
    assert row[2].tolist() == [100] * 4
    assert row[4].tolist() == [100, 100, 0, 100]
    assert weights[4].tolist() == [0, 0, 1, 0]
    assert row[5].tolist() == [0, 100, 100, 100]
    assert weights[5].tolist() == [1, 101, 0, 0]  # from 104 on the exact weight is 0
    assert np.exp(np.float64(-104)) < 2.0**-150
    np.testing.assert_array_equal(normalizer[:, 0], [21, 2, 0, nan, 1, 102])
    np.testing.assert_array_equal(one[:, 0], [9, 9, 0, nan, 9, 9])


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(("unit", "step"), [(0.25, 0.25), (0.25, 0.1), (0.5, 3.0)])
def test_integer_distance_of_integers(kind: type[np.int8 | np.uint8], unit: float, step: float) -> None:
    rows = np.stack([np.full(256, np.iinfo(kind).max), np.arange(256) + np.iinfo(kind).min], axis=1).astype(kind)
    exact = [min(int(Fraction(d) * Fraction(step) / Fraction(unit) + Fraction(1, 2)), 100) for d in range(255, -1, -1)]
    assert _integer_distances(rows, unit, step)[0][:, 1].tolist() == exact
    valid = np.stack([np.arange(256) % 2 > 0, np.arange(256) % 3 > 0], axis=1)
    row, weights, normalizer, one = _integer_distances(rows, unit, step, valid)
    expected = np.where(valid[:, 0], exact, np.where(valid[:, 1], 0, 100))
    np.testing.assert_array_equal(row[:, 1], np.where(valid[:, 1], expected, 100))
    np.testing.assert_array_equal(weights, np.where(valid, row + 1, 0))
    np.testing.assert_array_equal(normalizer[:, 0], weights.sum(axis=1))
    np.testing.assert_array_equal(one[:, 0], np.where(valid.any(axis=1), 9, 0))


def test_integer_distance_says_what_is_allowed() -> None:
    with pytest.raises(UsageError, match="i8 scores with step=0: integer scores are of 8 bits"):
        integer_distance(Trace("t", scores=DType.I8), 1.0, 255)
    with pytest.raises(UsageError, match="allowed are 1 to 16777216"):
        integer_distance(Trace("t"), 1.0, 2**25)
