"""EXAQ against Python integers, and its clip against the statistics of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.calibration import fit
from softq.methods import METHODS, Sample
from softq.rowprog import DType, run
from tests.conformance import assert_conforms, program_of


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("bits", "clip"), [(2, 5.17), (3, 5.56), (4, 5.93), (4, 10.7)])
@pytest.mark.parametrize("step", [0.0625, 0.25])
def test_codes_and_weights(bits: int, clip: float, step: float) -> None:
    last = 2**bits - 1

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        # t' = round((max(-d, C) - C) (2^b - 1) / -C) ... counted from the other end: the code of C is the last.
        t = [max(Fraction(-d) * Fraction(step), Fraction(-clip)) for d in row]
        levels = [round((x + Fraction(clip)) * last / Fraction(clip)) for x in t]
        weights = [round(2**14 * math.exp((level * clip / last) - clip)) for level in levels]
        return weights, sum(weights)

    settings = {"bits": bits, "clip": clip, "step": step}
    assert_conforms("exaq", settings, derive, unit=step, native=bits == 4)


@pytest.mark.parametrize(("bits", "slope", "offset"), [(2, 1.66, 1.85), (3, 1.75, 2.06), (4, 1.83, 2.27)])
def test_the_clip_is_measured(bits: int, slope: float, offset: float) -> None:
    rng = np.random.default_rng(1)
    scores = [(rng.normal(size=(8, 60)) * s).astype(np.float32) for s in (1.0, 2.0)]
    scores[0][:, ::3] = -np.inf
    scores[1][3] = -np.inf  # a fully masked row
    samples = [Sample(x, rng.normal(size=(60, 4)).astype(np.float32), h) for h, x in enumerate(scores)]
    seen = [np.concatenate([(r.max() - r)[r > -np.inf] for r in x if r.max() > -np.inf]).astype(np.float64)
            for x in scores]  # fmt: skip
    method = METHODS.get("exaq")
    heads = fit(method, method.configure({"bits": bits, "clip": "head"}), samples)["clip"]
    np.testing.assert_allclose(np.asarray(heads), [slope * d.std() + offset for d in seen], rtol=1e-6)
    options = method.resolve(method.configure({"bits": bits}), True)
    fitted = fit(method, options, samples)
    np.testing.assert_allclose(np.asarray(fitted["clip"]), slope * np.concatenate(seen).std() + offset, rtol=1e-6)
    # Run-time numbers give what the same numbers give as constants.
    given = run(method.program(options), scores[0], params=method.parameters(options, fitted))
    constant = run(program_of("exaq", {"bits": bits, "clip": fitted["clip"]}), scores[0])
    for name in ("codes", "weights", "normalizer"):
        np.testing.assert_array_equal(given[name], constant[name])


def test_the_clip_is_no_greater_than_what_was_seen() -> None:
    method = METHODS.get("exaq")
    sample = Sample(np.array([[0, -0.5, -0.25]], np.float32), None, 0)
    assert fit(method, method.configure({"clip": "site"}), [sample]) == {"clip": 0.5}


@pytest.mark.parametrize("mask", [-1e4, -1e9, -3.4e38, -math.inf])
def test_masked_elements_have_no_part_in_the_clip(mask: float) -> None:
    method = METHODS.get("exaq")
    options = method.configure({"bits": 3, "clip": "site"})
    scores = (np.random.default_rng(0).normal(size=(8, 64)) * 2).astype(np.float32)
    wide = np.concatenate([scores, scores[:, :32] + np.float32(mask)], axis=1)
    alone, masked = (fit(method, options, [Sample(rows, None, 0)]) for rows in (scores, wide))
    assert alone == masked


def test_without_data_the_clip_is_that_of_a_deviation_of_2() -> None:
    method = METHODS.get("exaq")
    options = method.resolve(method.configure({"bits": 4}), False)
    assert options.to_json()["clip"] == pytest.approx(1.83 * 2 + 2.27)
    assert program_of("exaq", {"step": 0.1}, DType.I8).scores is DType.I8
