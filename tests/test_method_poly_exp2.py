"""poly-exp2: its coefficients by Remez' algorithm, its weights in numpy's float32 numbers and against float64."""

from __future__ import annotations

import itertools
import math
import shutil

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.methods.poly_exp2 import MINIMAX, PUBLISHED
from softq.rowprog import run
from tests.rowhost import everywhere
from tests.test_methods import default_program

METHOD = METHODS.get("poly-exp2")
f32 = np.float32
F64 = NDArray[np.float64]

# The docstring's table, the published ones as surveys of the source round them.
STATED = {
    "published": {1: 3.88e-2, 2: 2.08e-3, 3: 8.77e-5, 4: 2.99e-6, 5: 8.54e-8},
    "minimax": {1: 2.99e-2, 2: 1.73e-3, 3: 7.49e-5, 4: 2.63e-6, 5: 9.03e-8},
}
EACH = pytest.mark.parametrize(("kind", "degree"), [(k, n) for k in STATED for n in range(1, 6)])


def relative_error(coefficients: tuple[float, ...] | F64, f: F64) -> F64:
    value = np.zeros_like(f)
    for c in coefficients[::-1]:
        value = value * f + c
    return value * 2.0**-f - 1


def remez(degree: int) -> tuple[F64, float]:
    """Coefficients of least relative error on [0, 1], and that error: it has degree + 2 extrema of one size."""
    count = degree + 2
    grid = np.linspace(0, 1, 100_001)
    points = (1 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2
    found, error = np.zeros(degree + 1), 0.0
    for _ in range(8):
        # c(f) 2^-f - 1 = +-error at the points.
        left = points[:, None] ** np.arange(degree + 1) * 2.0 ** -points[:, None]
        *solved, error = np.linalg.solve(np.column_stack([left, (-1.0) ** np.arange(count)]), np.ones(count)).tolist()
        found = np.array(solved)
        residual = relative_error(found, grid)
        edges = [0, *(np.flatnonzero(np.diff(np.sign(residual))) + 1).tolist(), len(grid)]
        runs = [range(a, b) for a, b in itertools.pairwise(edges)]
        points = np.array([grid[max(run, key=lambda i: abs(residual[i]))] for run in runs])
        assert len(points) == count
    return found, abs(error)


@pytest.mark.parametrize("degree", range(1, 6))
def test_the_coefficients_of_least_error(degree: int) -> None:
    found, error = remez(degree)
    np.testing.assert_array_equal(np.array(MINIMAX[degree]), found.astype(f32).astype(np.float64))
    assert error < STATED["minimax"][degree] <= error * 1.01 + 2.0**-26
    assert len(MINIMAX[degree]) == len(PUBLISHED[degree]) == degree + 1


@EACH
def test_the_stated_errors_of_the_polynomials(kind: str, degree: int) -> None:
    coefficients = (PUBLISHED if kind == "published" else MINIMAX)[degree]
    assert all(float(f32(c)) == c for c in coefficients)
    error = float(np.max(np.abs(relative_error(coefficients, np.linspace(0, 1, 200_001)))))
    assert 0.99 * STATED[kind][degree] < error <= STATED[kind][degree]


@EACH
def test_the_weights_on_every_backend(kind: str, degree: int) -> None:
    rng = np.random.default_rng(degree)
    x = np.concatenate([rng.normal(size=(8, 41)) * s for s in (0.2, 3, 20, 60)]).astype(f32)
    x[::5, 7] = -math.inf
    x[-1, :] = -math.inf
    coefficients = (PUBLISHED if kind == "published" else MINIMAX)[degree]
    peak = np.maximum(x.max(axis=-1, keepdims=True), np.finfo(f32).min)
    y = -((peak - x) * f32(math.log2(math.e)))
    low = np.floor(np.maximum(y, f32(-125)))
    f = np.maximum(y, f32(-125)) - low
    value = np.zeros_like(f)
    for c in reversed(coefficients):
        value = (value * f + f32(c)).astype(f32)
    wanted = np.where(y >= -125, np.ldexp(value, low.astype(np.int32)), 0).astype(f32)
    program = default_program(METHOD, degree=degree, coefficients=kind)
    found = {name: out["weights"] for name, out in everywhere(program, x, ["weights", "normalizer"])}
    if degree in (1, 3) and shutil.which("gcc"):
        pytest.importorskip("tvm")
        from tests.test_native_rows import MACHINES, MIDDLE, Host

        if MACHINES:
            found["kernel"] = Host(program, MIDDLE)(x)["weights"]
    for name, weights in found.items():
        np.testing.assert_array_equal(weights, wanted, err_msg=name)


@EACH
def test_the_stated_error_of_the_weights(kind: str, degree: int) -> None:
    d = np.concatenate([np.linspace(0, 86, 200_001), np.arange(125) * math.log(2)]).astype(f32)
    program = default_program(METHOD, degree=degree, coefficients=kind)
    weights = run(program, -d[None])["weights"][0].astype(np.float64)
    wide = d.astype(np.float64)
    error = np.abs(weights * np.exp(wide) - 1)
    assert np.all(error <= STATED[kind][degree] * (1 + 1e-6) + 1.2e-7 + wide * 7.3e-8)
    far = run(program, np.array([[0, -86.7, -88, -104, -1e30]], f32))["weights"][0]
    assert far.tolist()[1:] == [0, 0, 0, 0]


def test_the_source_s_default_is_the_default() -> None:
    assert METHOD.configure({}).to_json() == {"degree": 3, "coefficients": "published"}
