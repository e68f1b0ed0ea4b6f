"""limit-exp against Python integers, and against the formula and e^-d in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length
from tests.conformance import assert_conforms, program_of


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("bits", "squarings"), [(8, 4), (10, 8), (16, 5), (18, 8), (20, 10)])
def test_the_arithmetic(bits: int, squarings: int) -> None:
    step = 2.0**-4

    def weight(d: int) -> int:
        if d * step >= 14:
            return 0
        # 1 + x / 2^t for x = -d, rounded to minus infinity as an arithmetic shift of x is.
        b = 2**bits + ((-d * 2 ** (bits - 4)) >> squarings)
        for _ in range(squarings):
            b = b * b // 2**bits
        return b

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        w = [weight(d) for d in row]
        return w, sum(w)

    settings = {"bits": bits, "squarings": squarings, "step": step}
    assert_conforms("limit-exp", settings, derive, unit=step, native=(bits, squarings) in ((16, 5), (18, 8)))


@pytest.mark.parametrize(("squarings", "stated"), [(5, 8.55e-3), (8, 1.06e-3), (4, None), (10, None)])
@pytest.mark.parametrize("bits", [12, 18, 20])
def test_the_stated_error(bits: int, squarings: int, stated: float | None) -> None:
    d = np.arange(0, 14 * 2**bits, max(1, 2**bits // 4096)).astype(np.float64) / 2**bits
    limit = (1 - d / 2**squarings) ** 2**squarings
    short = np.exp(-d) - limit
    if stated is not None:
        assert 0.99 * stated < np.max(short) <= stated
        assert abs(d[np.argmax(short)] - 2) < 0.1
    assert np.max(short) <= 0.28 / 2**squarings
    weights = run(program_of("limit-exp", {"bits": bits, "squarings": squarings}), -d.astype(np.float32)[None])
    w = weights["weights"][0] / 2.0**bits
    assert np.all(w <= limit + 1e-12)
    assert np.max(limit - w) <= 2.0 ** (squarings + 1 - bits)
    assert np.all(np.diff(w) <= 0)


def test_beyond_the_cut_the_power_does_not_grow_again() -> None:
    assert (1 - 100 / 2**5) ** 2**5 > 2.9e10
    x = np.array([[0, -13.999, -14, -64, -70, -100, -1e4]], np.float32)
    for squarings in (5, 8):
        w = run(program_of("limit-exp", {"squarings": squarings, "bits": 20}), x)["weights"][0]
        assert w[0] == 2**20
        assert w[2:].tolist() == [0] * 5


def test_rows_of_any_length_are_proved() -> None:
    for kind in (DType.F32, DType.I8):
        assert largest_length(program_of("limit-exp", {"step": 0.05}, kind), 2**24) == 2**24
