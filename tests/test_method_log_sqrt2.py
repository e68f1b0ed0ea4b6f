"""log-sqrt2 against its formula in plain Python numbers, and its scale against the three percentiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from softq import calibration
from softq.methods import METHODS, Sample
from softq.rowprog import run
from softq.rowprog.onnx import to_model
from tests.rowhost import session
from tests.test_methods import default_program, hard_scores, probabilities, softmax64

METHOD = METHODS.get("log-sqrt2")


def fake_quantized(p: NDArray[np.float64], bits: int, scale: float, beyond: bool) -> NDArray[np.float64]:
    """Quantize and decode with the two scales of the reparameterization, element by element."""
    out = np.zeros_like(p)
    for at, value in np.ndenumerate(p):
        code = max(round(-2 * math.log2(value / scale)), 0) if value > 0 else 10**9
        if code < 2**bits - (not beyond):
            out[at] = (scale * math.sqrt(2) if code % 2 else scale) * 2.0 ** -math.ceil(code / 2)
    return out


@pytest.mark.parametrize("zero", ["code", "beyond"])
@pytest.mark.parametrize("scale", [1.0, 0.27, 2.0**-10])
@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_values_of_the_formula(bits: int, scale: float, zero: str) -> None:
    x = hard_scores()[::9]
    p = softmax64(x)
    found = probabilities(default_program(METHOD, bits=bits, scale=scale, zero=zero), x)
    expected = fake_quantized(p, bits, scale, zero == "beyond")
    with np.errstate(divide="ignore"):
        level = np.clip(-2 * np.log2(p / scale), 0, 2**9)
    clear = np.abs(level % 1 - 0.5) > 1e-5 + 2e-6 * level
    clear &= level < 248 if bits == 8 else True  # from there on 8 bits have the code of zero
    assert np.mean(clear) > 0.6 if bits == 8 else np.mean(clear) > 0.999
    np.testing.assert_allclose(found[clear], expected[clear], rtol=2e-7, atol=0)
    assert found.max() <= scale * (1 + 1e-7)


def test_a_code_is_a_log2_code_with_the_scale_of_its_parity() -> None:
    out = run(default_program(METHOD, bits=8), (np.arange(0, 60, 0.02)[None] * -1).astype(np.float32))
    codes, weights = out["codes"].astype(int), out["weights"].astype(np.float32)
    k = (codes + 1) // 2
    root = np.where(codes % 2, np.float32(math.sqrt(2)), np.float32(1)).astype(np.float64)
    np.testing.assert_array_equal(weights, root * 2.0**-k)  # exactly: a shift of one of two numbers
    assert len(np.unique(codes)) > 150


@pytest.mark.parametrize("scope", ["site", "head"])
def test_the_scale_is_the_best_of_three_percentiles_of_unmasked_elements(scope: str) -> None:
    rng = np.random.default_rng(4)
    samples: list[Sample] = []
    for head, spread in ((0, 0.5), (1, 3.0), (0, 0.7), (1, 2.0)):
        scores = (rng.normal(size=(16, 256)) * spread).astype(np.float32)
        scores[np.triu_indices(16, 200, 256)] = -math.inf
        samples.append(Sample(scores, rng.normal(size=(256, 4)).astype(np.float32), head))
    fitted = calibration.fit(METHOD, METHOD.configure({"scale": scope}), samples)["scale"]

    def best(group: list[Sample]) -> float:
        p = np.concatenate([softmax64(s.scores)[np.isfinite(s.scores)] for s in group])
        scales = [float(np.quantile(p, q)) for q in (0.999, 0.9999, 0.99999)]
        return min(scales, key=lambda s: float(np.mean((fake_quantized(p, 4, s, False) - p) ** 2)))

    if scope == "site":
        assert fitted == pytest.approx(best(samples), rel=1e-12)
        assert best(samples) < 1
    else:
        expected = [best([s for s in samples if s.head == h]) for h in (0, 1)]
        assert fitted == pytest.approx(expected, rel=1e-12)
        assert expected[0] < expected[1] / 2


def test_a_fitted_scale_is_one_that_is_given() -> None:
    x = hard_scores()[::5]
    program = METHOD.program(METHOD.configure({"scale": "head", "bits": 3}))
    values = METHOD.parameters(METHOD.configure({"scale": "head"}), {"scale": (0.25, 0.75)})
    both = np.stack([x, x])[None]
    out = run(program, both, params=values)
    host = session(to_model(program, values, shape=["b", "heads", "q", "N"], outputs=["weights", "normalizer"]))
    weights, total = (np.asarray(v) for v in host.run(None, {"scores": both}))
    assert np.mean(weights != out["weights"]) <= 1e-5
    np.testing.assert_array_equal(total, out["normalizer"])
    for head, scale in enumerate((0.25, 0.75)):
        alone = run(default_program(METHOD, bits=3, scale=scale), x)
        assert np.mean(out["codes"][0, head] != alone["codes"]) <= 1e-5


def test_signal_to_noise_of_independent_scores() -> None:
    """Within half a decibel of what an independent model of the method gave for scale 1."""
    rng = np.random.default_rng(0)
    for length, spread, decibels in (
        (197, 2, (6.3, 18.1, 19.6)),
        (197, 4, (15.7, 19.9, 19.9)),
        (1024, 1, (0, 3, 20.1)),
    ):
        x = (rng.normal(size=(64, length)) * spread).astype(np.float32)
        p = softmax64(x)
        for bits, expected in zip((3, 4, 6), decibels, strict=True):
            found = probabilities(default_program(METHOD, bits=bits, scale=1, zero="beyond"), x)
            assert abs(10 * math.log10(np.sum(p**2) / np.sum((found - p) ** 2)) - expected) < 0.8
