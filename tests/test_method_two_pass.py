"""two-pass against its formulas in numpy's float32 numbers, one by one, and against float64."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import run
from tests.rowhost import everywhere
from tests.test_methods import default_program, probabilities, softmax64

METHOD = METHODS.get("two-pass")
F32 = NDArray[np.float32]
f32 = np.float32
INF = math.inf


def extended(x: np.float32) -> tuple[np.float32, int]:
    """Mantissa and exponent of e^x; the reduction in float64, which holds all its products whole."""
    n = int(np.rint(x * f32(math.log2(math.e))))
    # As the paper's two steps: ln 2 less its first 9 and next 9 bits, each product exact.
    rest = f32(f32(float(x) - n * (355 / 512)) - f32(n * (-445 / 2**21)))
    rest = rest - f32(n) * f32(math.log(2) - 355 / 512 + 445 / 2**21)
    v = f32(float.fromhex("0x1.0F9F9Cp-7"))
    for c in ("0x1.573A1Ap-5", "0x1.555A80p-3", "0x1.FFFDC6p-2", "0x1.FFFFF6p-1", "0x1p0"):
        v = v * rest + f32(float.fromhex(c))
    return v, n


def derive(row: F32) -> tuple[list[float], float]:
    """Weights and sum of finite and masked scores: mantissas and exponents merged in the order of the row."""
    pairs = [(f32(0), -(10**6)) if x == -INF else extended(f32(np.clip(x, -16384, 16384))) for x in row]

    def scaled(v: np.float32, by: int) -> np.float32:
        return f32(math.ldexp(v, by)) if by > -126 else f32(0)

    total, greatest = f32(0), -(10**6)
    for v, n in pairs:
        after = max(greatest, n)
        total, greatest = f32(scaled(total, greatest - after) + scaled(v, n - after)), after
    return [float(scaled(v, n - greatest)) for v, n in pairs], float(total)


def rows() -> F32:
    rng = np.random.default_rng(3)
    parts = [(rng.normal(size=(12, 41)) * s + c).astype(f32)
             for s, c in ((0.3, 0), (4, 95), (60, -300), (3000, 2000), (1, 1e4), (3, -16300), (1e30, 0))]  # fmt: skip
    parts += [np.sort(parts[2], axis=-1), np.sort(parts[2], axis=-1)[:, ::-1]]
    x = np.concatenate(parts).astype(f32)
    x[::7, ::3] = -INF
    x[5] = -INF
    return x


def backends(x: F32, keep: NDArray[np.bool_] | None, **settings: object) -> Iterator[tuple[str, Mapping[str, F32]]]:
    program = default_program(METHOD, masked=keep is not None, **settings)
    for name, out in everywhere(program, x, ["weights", "normalizer"], valid=keep):
        yield name, {key: np.asarray(value, f32) for key, value in out.items()}
    if shutil.which("gcc") is None:
        return
    pytest.importorskip("tvm")
    from tests.test_native_rows import MACHINES, MIDDLE, Host

    if MACHINES:
        yield "kernel", {key: np.asarray(value, f32) for key, value in Host(program, MIDDLE)(x, valid=keep).items()}


@pytest.mark.parametrize("maximum", ["running", "first"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_formulas_on_every_backend(maximum: str, masked: bool) -> None:
    x = rows()
    keep = np.random.default_rng(1).random(x.shape) < 0.7 if masked else None
    shown = x if keep is None else np.where(keep, x, f32(-INF))
    wanted = [derive(row) for row in shown]
    for name, out in backends(x, keep, maximum=maximum):
        np.testing.assert_array_equal(out["weights"], np.array([w for w, _ in wanted], f32), err_msg=name)
        totals = np.array([[total] for _, total in wanted], f32)
        if maximum == "running":
            np.testing.assert_array_equal(out["normalizer"], totals, err_msg=name)
        else:  # in any order
            np.testing.assert_allclose(out["normalizer"], totals, rtol=41 * 2.0**-23, err_msg=name)


@pytest.mark.parametrize("maximum", ["running", "first"])
def test_infinities(maximum: str) -> None:
    x = np.array([[INF, 1, 16384, INF, -INF], [-INF, 5, INF, 3e38, -3e38], [-INF] * 5, [3e38, -INF, 1, 2, 3]], f32)
    p = [[0.5, 0, 0, 0.5, 0], [0, 0, 1, 0, 0], [0] * 5, [1, 0, 0, 0, 0]]
    for name, out in backends(x, None, maximum=maximum):
        total = out["normalizer"]
        np.testing.assert_array_equal(out["weights"] / np.where(total == 0, 1, total), p, err_msg=name)


def test_the_stated_error() -> None:
    # Weights are relative to 2^n of the row's greatest score, in long double here: rows from all over the range.
    greatest = 0.0
    for start in (0.0, 30.0, -700.0, 9000.0, -16384.0 + 90):
        x = (start - np.linspace(0, 80, 200_001)).astype(f32)
        weights = run(default_program(METHOD, maximum="first"), x[None])["weights"][0].astype(np.float64)
        octave = round(float(x[0]) * math.log2(math.e))
        exact = np.exp(x.astype(np.longdouble) - octave * np.log(np.longdouble(2)))
        greatest = max(greatest, float(np.max(np.abs(weights / exact - 1))))
    assert 1.5e-7 < greatest <= 2e-7
    x = np.linspace(-16, 0, 400_001, dtype=f32)
    weights = run(default_program(METHOD, maximum="first"), x[None])["weights"][0]
    assert np.max(np.abs(weights - np.exp(x.astype(np.float64)))) <= 1.3e-7


def test_no_maximum_is_needed() -> None:
    x = (np.random.default_rng(0).normal(size=(50, 197)) * 9 + 1000).astype(f32)  # e^1000 overflows
    p, exact = probabilities(default_program(METHOD), x), softmax64(x)
    seen = exact > 1e-37
    assert np.max(np.abs(p[seen] / exact[seen] - 1)) <= 4e-7 + 197 * 2.0**-23
