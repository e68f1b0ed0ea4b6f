"""exact-online against its recurrence in float64 and against `exact`."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import run
from softq.rowprog.ranges import prove
from tests.rowhost import everywhere
from tests.test_methods import default_program, hard_scores, softmax64

METHOD = METHODS.get("exact-online")
F32 = NDArray[np.float32]


def recurrence(row: F32) -> tuple[float, float, int]:
    """Maximum, sum and rises by lines 2 to 6 of the paper's algorithm 3, in float64."""
    m, d, rises = float(np.finfo(np.float32).min), 0.0, 0
    for x in row.tolist():
        before, m = m, max(m, x)
        d = d * math.exp(before - m) + math.exp(x - m)
        rises += m > before
    return m, d, rises


def rows() -> F32:
    """Hard rows in the given order, and ones whose maximum rises with each element, and never."""
    hard = hard_scores()[::9]
    return np.concatenate([hard, np.sort(hard, axis=-1), np.sort(hard, axis=-1)[:, ::-1]])


def test_the_recurrence() -> None:
    x = rows()
    out = run(default_program(METHOD), x)
    bounds = []
    for row, weights, total in zip(x, out["weights"], out["normalizer"][:, 0], strict=True):
        m, d, rises = recurrence(row)
        bound = 1e-7 * (1 + rises) + len(row) * 2.0**-23
        bounds.append(abs(total / d - 1) / bound)
        with np.errstate(under="ignore"):
            wanted = np.exp((row.astype(np.float32).max() - row).astype(np.float64) * -1)
        assert m == row.max()
        seen = wanted > 3e-38
        assert np.max(np.abs(weights[seen] / wanted[seen] - 1)) <= 1e-7
        assert np.max(weights[~seen], initial=0) <= 3e-38
    assert max(bounds) <= 1


def test_weights_are_those_of_exact() -> None:
    x = rows()
    ours, theirs = (run(default_program(METHODS.get(name)), x) for name in ("exact-online", "exact"))
    np.testing.assert_array_equal(ours["weights"], theirs["weights"])
    ratio = ours["normalizer"].astype(np.float64) / theirs["normalizer"].astype(np.float64)
    assert np.max(np.abs(ratio - 1)) <= x.shape[-1] * (2.0**-23 + 1e-7)


@pytest.mark.parametrize("masked", [False, True])
def test_every_backend(masked: bool) -> None:
    inf = math.inf
    x = np.concatenate([rows()[:, :23], np.full((1, 23), -inf, np.float32)])
    x[3, :5], x[4, ::2], x[5, 7:9] = -inf, -inf, inf
    keep = np.random.default_rng(0).random(x.shape) < (0.6 if masked else 2)
    shown = np.where(keep, x, np.float32(-inf))
    peak = np.maximum(shown.max(axis=-1, keepdims=True), np.finfo(np.float32).min)
    with np.errstate(invalid="ignore"):
        wanted = softmax64(shown)
        wanted[np.isinf(peak[:, 0])] = 0
        wanted[shown == inf] = 1
        wanted /= np.maximum(wanted.sum(axis=-1, keepdims=True), 1e-300)
    valid = keep if masked else None
    program = default_program(METHOD, masked=masked)
    found = [(name, out) for name, out in everywhere(program, x, ["weights", "normalizer"], valid=valid)]
    if shutil.which("gcc") and pytest.importorskip("tvm"):
        from tests.test_native_rows import MACHINES, MIDDLE, Host

        found += [("kernel", Host(program, MIDDLE)(x, valid=valid))] if MACHINES else []
    for name, out in found:
        total = np.asarray(out["normalizer"], np.float64)
        p = np.asarray(out["weights"], np.float64) / np.where(total == 0, 1, total)
        expected = np.where(np.isneginf(shown).all(axis=-1, keepdims=True), 0, wanted)
        np.testing.assert_allclose(p, expected, rtol=2e-5, atol=3e-38, err_msg=name)


def test_the_sum_does_not_grow_beyond_what_f32_counts() -> None:
    assert prove(default_program(METHOD), max_length=2**31 - 1)
