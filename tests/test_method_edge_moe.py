"""edge-moe against its recurrence in Python integers, and its exponential against e^-d."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from softq.rowprog import DType, run
from softq.rowprog.ranges import prove
from tests.conformance import assert_conforms, program_of
from tests.test_methods import softmax64

ONE = 2**22


def exponential(d: int) -> int:
    """2^22 e^-d: three factors of 30 fraction bits, for the 9 highest, the next 9 and the last 8 bits of 26."""
    if d >= 2**26:
        return 0
    a, b, c = (round(2**30 * math.exp(-(part / ONE))) for part in (d - d % 2**17, d % 2**17 - d % 2**8, d % 2**8))
    return ((a * b + 2**29) // 2**30 * c + 2**37) // 2**38


def derivation(step: float, maximum: str, output: str):
    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        scores = [-round(d * step * ONE) for d in row]
        if maximum == "first":
            m = max(scores)
            s = sum(exponential(m - x) for x in scores)
        else:
            s, m = 0, -512 * ONE
            for x in scores:
                if x > m:
                    s, m = s * exponential(x - m) // ONE + ONE, x
                else:
                    s += exponential(m - x)
        w = [exponential(m - x) for x in scores]
        return (w, s) if output == "pair" else ([v * (ONE * ONE // s) // ONE for v in w], ONE)

    return derive


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("maximum", ["running", "first"])
@pytest.mark.parametrize(("output", "step"), [("pair", 2.0**-4), ("fixed", 0.25)])
def test_the_recurrence(maximum: str, output: str, step: float) -> None:
    settings = {"maximum": maximum, "output": output, "step": step}
    derive = derivation(step, maximum, output)
    for kinds in ((DType.F32,), (DType.I8, DType.U8)):
        native = output == "pair" and kinds == (DType.F32,)
        assert_conforms("edge-moe", settings, derive, unit=step, kinds=kinds, native=native)


def test_any_step_of_integer_scores() -> None:
    derive = derivation(round(0.0371 * ONE) / ONE, "running", "pair")
    assert_conforms("edge-moe", {"step": 0.0371}, derive, unit=0.0371, kinds=(DType.I8,), native=False)


def test_the_exponential_is_within_its_bound() -> None:
    rng = np.random.default_rng(0)
    d = np.unique(np.concatenate([np.arange(2000), rng.integers(0, 2**26, 200_000), 2**26 - np.arange(1, 2000)]))
    x = np.concatenate([[0.0], -(d[d <= 2**24] / ONE)]).astype(np.float32)  # exact in f32
    weights = run(program_of("edge-moe", {"maximum": "first"}), x[None])["weights"][0, 1:]
    assert np.max(np.abs(weights - ONE * np.exp(x[1:].astype(np.float64)))) <= 0.51
    for at in d[:: len(d) // 3000].tolist():
        assert abs(exponential(at) - ONE * math.exp(-at / ONE)) <= 0.51
    assert exponential(2**26 - 1) == 0


@pytest.mark.parametrize("maximum", ["running", "first"])
def test_scores_beyond_the_range_count_as_its_end(maximum: str) -> None:
    inf, end = math.inf, 512 - 2.0**-15
    x = np.array([[600, 700, -600, 0], [600, end, -600, -1e30], [-600, -512, -1e9, -inf], [inf, 1e9, end, inf],
                  [-inf] * 4, [0, -1e4, -inf, -1e9]], np.float32)  # fmt: skip
    out = run(program_of("edge-moe", {"maximum": maximum}), x)
    wanted = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1], [0] * 4, [1, 0, 0, 0]])
    np.testing.assert_array_equal(out["weights"], wanted * ONE)
    np.testing.assert_array_equal(out["normalizer"][:, 0], wanted.sum(axis=-1) * ONE)


@pytest.mark.parametrize("maximum", ["running", "first"])
def test_rows_longer_than_its_format_counts(maximum: str) -> None:
    # 512 equal scores are beyond the ten whole bits of the source.
    out = run(program_of("edge-moe", {"maximum": maximum}), np.zeros((1, 2000), np.float32))
    assert out["normalizer"][0, 0] == 2000 * ONE
    assert prove(program_of("edge-moe", {"maximum": maximum}), max_length=2**31 - 1)


def test_the_running_sum_is_near_that_of_the_weights() -> None:
    x = (np.random.default_rng(2).normal(size=(100, 197)) * 3).astype(np.float32)
    x = np.concatenate([x, np.sort(x, axis=-1)])
    out = run(program_of("edge-moe", {}), x)
    weights = out["weights"].astype(np.float64)
    rises = np.sum(np.diff(np.maximum.accumulate(x, axis=-1), axis=-1) > 0, axis=-1)
    total = out["normalizer"][:, 0].astype(np.float64)
    assert np.all(np.abs(weights.sum(axis=-1) - total) <= rises * (2 + total / ONE) + 197 + total * 2.0**-23)
    assert np.max(np.abs(weights / total[:, None] - softmax64(x))) <= 2e-6
