"""pade: its quotients from the general formula in fractions, and its weights against float64."""

from __future__ import annotations

import math
import shutil
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import run
from tests.rowhost import everywhere
from tests.test_methods import default_program

METHOD = METHODS.get("pade")
f32 = np.float32
F64 = NDArray[np.float64]
STATED = {1: 3.6e-3, 2: 7.0e-6, 3: 6.2e-9}


def coefficients(order: int) -> list[Fraction]:
    """The numerator's, constant first: (2m - j)! m! / ((2m)! j! (m - j)!)."""
    f = math.factorial
    return [Fraction(f(2 * order - j) * f(order), f(2 * order) * f(j) * f(order - j)) for j in range(order + 1)]


def quotient(order: int, r: F64) -> F64:
    up = np.polyval([float(c) for c in coefficients(order)[::-1]], r)
    down = np.polyval([float(c) for c in coefficients(order)[::-1]], -r)
    return up / down


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_stated_errors_of_the_quotients(order: int) -> None:
    r = np.linspace(-math.log(2) / 2, math.log(2) / 2, 200_001)
    assert 0.95 * STATED[order] < np.max(np.abs(quotient(order, r) * np.exp(-r) - 1)) <= STATED[order]
    if order == 2:  # what the docstring says of it without octaves
        r = np.linspace(-1, 0, 10_001)
        assert 1.4e-3 < np.max(np.abs(quotient(2, r) * np.exp(-r) - 1)) <= 1.5e-3


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_weights(order: int) -> None:
    d = np.linspace(0, 86.5, 300_001).astype(f32)
    weights = run(default_program(METHOD, order=order), -d[None])["weights"][0].astype(np.float64)
    wide = d.astype(np.float64)
    n = np.rint(wide * math.log2(math.e))
    wanted = quotient(order, n * math.log(2) - wide) * 2.0**-n
    # Beside a middle between two octaves float32 may take the other one.
    clear = np.abs(np.abs(wide * math.log2(math.e) - n) - 0.5) > 1e-4
    assert np.max(np.abs(weights[clear] / wanted[clear] - 1)) <= 3e-7
    assert np.max(np.abs(weights * np.exp(wide) - 1)) <= STATED[order] + 3e-7
    assert run(default_program(METHOD, order=order), np.array([[0, -86.6, -1e30]], f32))["weights"].tolist() == [
        [1, 0, 0]
    ]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_every_backend_has_the_same_weights(order: int, masked: bool) -> None:
    rng = np.random.default_rng(order)
    x = np.concatenate([rng.normal(size=(8, 41)) * s for s in (0.2, 3, 20, 60)]).astype(f32)
    x[::5, 7], x[-1, :] = -math.inf, -math.inf
    keep = rng.random(x.shape) < 0.7 if masked else None
    program = default_program(METHOD, masked=masked, order=order)
    found = [(name, out) for name, out in everywhere(program, x, ["weights", "normalizer"], valid=keep)]
    if shutil.which("gcc"):
        pytest.importorskip("tvm")
        from tests.test_native_rows import MACHINES, MIDDLE, Host

        found += [("kernel", Host(program, MIDDLE)(x, valid=keep))] if MACHINES else []
    first = {key: np.asarray(value, np.float64) for key, value in found[0][1].items()}
    for name, out in found[1:]:
        np.testing.assert_array_equal(np.asarray(out["weights"], np.float64), first["weights"], err_msg=name)
        total = np.asarray(out["normalizer"], np.float64)
        np.testing.assert_allclose(total, first["normalizer"], rtol=41 * 2.0**-24)  # in any order
