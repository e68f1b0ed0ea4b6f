"""deferred-log-online against a loop in plain Python integers, on every backend, and against deferred-log."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from softq import calibration
from softq.methods import METHODS, Sample
from softq.rowprog import Program, run
from softq.rowprog.ranges import prove
from tests.rowhost import everywhere
from tests.test_methods import default_program, probabilities, softmax64

METHOD, SEVERAL = METHODS.get("deferred-log-online"), METHODS.get("deferred-log")
SETTINGS = [(2, 0.5), (3, 0.75), (4, 1.0), (4, 2.3), (8, 16.0)]
F32 = NDArray[np.float32]
LEAST = np.finfo(np.float32).min


def derive(row: F32, keep: NDArray[np.bool_], bits: int, r: float) -> tuple[list[int], int, list[int]]:
    """Weights, sum and codes of one row; the float steps in float32, all others in Python integers."""
    top, rate = 2**bits - 1, np.float32(r * math.log2(math.e))

    def factor(k: int) -> int:
        return round(2 ** (14 - k / r))

    def steps(a: np.float32, b: np.float32) -> float:
        with np.errstate(all="ignore"):
            product = float((a - b) * rate)
        return 0.0 if math.isnan(product) else max(product, 0.0)

    reference, total = np.float32(LEAST), 0
    kept: list[tuple[int, int]] = []  # each element's weight now, and its code
    vanished = next(k for k in range(10**4) if factor(k) == 0)
    for x, here in zip(row, keep, strict=True):
        score = x if here else np.float32(-np.inf)
        up = steps(score, reference)
        rise = vanished if up > vanished else round(up)
        if rise < vanished:
            reference = np.float32(reference + np.float32(rise) * (np.float32(1) / rate))
        else:
            reference = np.float32(max(float(score), float(LEAST)))
        down = steps(reference, score)
        code = top if down > top else round(down)
        weight = factor(code) if code < top else 0
        total = (total * factor(rise) + 2**13) // 2**14 + weight
        kept = [(rise + risen, c) for risen, c in kept] + [(0, code)]
    weights = [((factor(c) if c < top else 0) * factor(min(k, vanished)) + 2**13) // 2**14 for k, c in kept]
    return weights, total, [c for _, c in kept]


def rows() -> F32:
    rng = np.random.default_rng(11)
    inf, most = np.inf, -LEAST
    special = np.array([[inf, 0, 1, inf, -inf, 2], [-inf] * 6, [-inf, -inf, 5, -inf, 5, 4], [most, 0, 0, most, 1, 2],
                        [-1e9, -1e9, 1, 2, 3, 3], [LEAST, LEAST, LEAST, 0, 1, LEAST], [0, 20, 40, 60, 80, 100],
                        [1e-45, 0, -1e-45, 0, 1, -1]], np.float32)  # fmt: skip
    parts = [np.tile(special, (1, 7))[:, :41], np.linspace(0, 0.3, 41, dtype=np.float32)[None]]
    for spread in (0.2, 1, 4, 15):
        parts.append((rng.normal(size=(12, 41)) * spread).astype(np.float32))
    parts += [np.sort(parts[-1], axis=-1), np.sort(parts[-2], axis=-1)[:, ::-1], np.cumsum(np.abs(parts[-3]), axis=-1)]
    return np.concatenate(parts).astype(np.float32)


def assert_derived(
    out: Mapping[str, NDArray[np.generic]], x: F32, keep: NDArray[np.bool_], bits: int, r: float
) -> None:
    for i, (row, mask) in enumerate(zip(x, keep, strict=True)):
        weights, total, codes = derive(row, mask, bits, r)
        assert np.asarray(out["weights"])[i].tolist() == weights
        assert np.asarray(out["normalizer"])[i, 0] == np.float32(total)
        if "codes" in out:
            assert np.asarray(out["codes"])[i].tolist() == codes


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("bits", "r"), SETTINGS)
def test_the_loop_in_python_integers(bits: int, r: float, masked: bool) -> None:
    program, x = default_program(METHOD, masked=masked, bits=bits, r=r), rows()
    keep = np.random.default_rng(1).random(x.shape) < (0.6 if masked else 2)
    keep[::9] &= not masked
    hidden = np.where(keep, x, np.float32(np.nan))
    for _, out in everywhere(program, hidden, ["weights", "normalizer", "codes"], valid=keep if masked else None):
        assert_derived(out, x, keep, bits, r)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("bits", "r"), [(3, 0.75), (4, 1.0)])
def test_a_built_kernel_gives_the_same(bits: int, r: float, masked: bool) -> None:
    pytest.importorskip("tvm")
    from tests.test_native_rows import MIDDLE, MISSING, Host

    if MISSING:
        pytest.skip(MISSING)
    program, x = default_program(METHOD, masked=masked, bits=bits, r=r), rows()
    keep = np.random.default_rng(1).random(x.shape) < (0.6 if masked else 2)
    out = Host(program, MIDDLE)(x, valid=keep if masked else None)
    assert_derived(out, x, keep, bits, r)


def same_integers(program: Program, other: Program, x: F32) -> None:
    ours, theirs = run(program, x), run(other, x)
    for name in ("weights", "normalizer", "codes"):
        np.testing.assert_array_equal(ours[name].astype(np.float64), theirs[name].astype(np.float64))


@pytest.mark.parametrize(("bits", "r"), SETTINGS)
def test_it_is_deferred_log_where_the_maximum_comes_first(bits: int, r: float) -> None:
    x = rows()
    x = x[np.isfinite(x).any(axis=-1)]
    x[:, 0] = x.max(axis=-1)
    same_integers(default_program(METHOD, bits=bits, r=r), default_program(SEVERAL, bits=bits, r=r, steps="equal"), x)


@pytest.mark.parametrize(("bits", "r"), SETTINGS)
def test_the_weights_of_a_row_have_the_running_sum(bits: int, r: float) -> None:
    x = rows()
    x = x[np.isfinite(x).any(axis=-1)]
    out = run(default_program(METHOD, bits=bits, r=r), x)
    total = out["weights"].astype(np.float64).sum(axis=-1)
    # Half a unit for each element and rise, and the roundings of the factors that rises chain: 2^-15 of S each.
    bound = (41 + 41) / 2 + 41 * 2.0**-15 * total
    assert np.all(np.abs(total - out["normalizer"][:, 0]) <= bound)


def test_small_rises_add_up() -> None:
    # Three hundred rises of a tenth of a code: the first element ends 30 codes below the last, not at its height.
    x = (np.arange(300) * 0.1 / math.log2(math.e)).astype(np.float32)[None]
    out = run(default_program(METHOD, bits=8, r=1), x)
    exact = -np.log2(softmax64(x) / softmax64(x)[:, -1:])
    p = out["weights"].astype(np.float64)
    seen = exact < 10
    assert np.max(np.abs(np.log2(p[-1, -1] / p[seen]) - exact[seen])) <= 1.01


def test_the_error_is_near_that_of_several_passes() -> None:
    x = (np.random.default_rng(0).normal(size=(100, 200)) * 2).astype(np.float32)
    p = softmax64(x)
    for bits, r in SETTINGS:
        ours, theirs = (
            float(np.sum((probabilities(program, x) - p) ** 2))
            for program in (
                default_program(METHOD, bits=bits, r=r), default_program(SEVERAL, bits=bits, r=r, steps="equal"),
            )
        )  # fmt: skip
        assert 0.5 * theirs < ours < 2.5 * theirs


def test_proved_for_long_rows_and_fitted_a_head() -> None:
    assert prove(default_program(METHOD, bits=8), max_length=2**24)
    rng = np.random.default_rng(5)
    samples = [
        Sample(
            (rng.normal(size=(2, 12)) * (1, 6)[h]).astype(np.float32), rng.normal(size=(12, 3)).astype(np.float32), h
        )
        for h in (0, 1)
    ]
    options = METHOD.configure({"bits": 3, "r": "head"})
    fitted = calibration.fit(METHOD, options, samples)
    x = np.stack([s.scores for s in samples])[None]
    params = METHOD.parameters(options, fitted)
    for _, out in everywhere(METHOD.program(options), x, ["weights", "normalizer"], params=params):
        for head, r in enumerate(np.atleast_1d(fitted["r"])):
            alone = run(default_program(METHOD, bits=3, r=float(r)), samples[head].scores)
            np.testing.assert_array_equal(np.asarray(out["weights"])[0, head], alone["weights"].astype(np.int64))
            np.testing.assert_array_equal(np.asarray(out["normalizer"])[0, head], alone["normalizer"])
