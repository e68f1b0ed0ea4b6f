"""minifloat against LLM-FP4's formula with its exponent bias, and its rounding against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from softq import calibration
from softq.errors import UsageError
from softq.methods import METHODS, Sample
from softq.methods.minifloat import nearest
from softq.rowprog import DType, Trace, run
from softq.rowprog.onnx import to_model
from tests.rowhost import everywhere, session
from tests.test_methods import default_program, hard_scores, probabilities, softmax64

METHOD = METHODS.get("minifloat")
FORMATS = [(b, m) for b in range(2, 9) for m in range(max(b - 6, 0), b)]


def quantized(value: Fraction, bits: int, mantissa: int, scale: Fraction | int) -> Fraction:
    """LLM-FP4: clip, exponent of at least 1, step, round half to even. The scale is 2^bias."""
    y = min(value * scale, (2 - Fraction(1, 2**mantissa)) * 2 ** (2 ** (bits - mantissa) - 1))
    exponent = 1
    while y >= 2 ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - mantissa)
    return round(y / step) * step / scale


@pytest.mark.parametrize(("bits", "mantissa"), FORMATS)
def test_rounding_is_exact_ties_and_neighbours_of_ties_included(bits: int, mantissa: int) -> None:
    t = Trace("rounding", structure="x", scores=DType.F32)
    magic, least = t.const(2.0 ** (23 - mantissa), DType.F32), t.const(2.0 ** (2 - 2 ** (bits - mantissa)), DType.F32)
    program = t.program(weights=nearest(t, t.scores, magic, least), normalizer=t.length())
    highest = 2 ** (bits - mantissa) - 1
    numbers = {quantized(Fraction(k, 2 ** (j + mantissa)), bits, mantissa, 2**highest)
               for j in range(min(highest, 40)) for k in range(2 ** (mantissa + 1))}  # fmt: skip
    assert len(numbers) == 2**bits or highest > 40
    middle = [(a + b) / 2 for a, b in zip(sorted(numbers), sorted(numbers)[1:], strict=False)]
    at = np.array([float(x) for x in (*numbers, *middle)], np.float32)
    x = np.concatenate([at, np.nextafter(at, np.float32(4)), np.nextafter(at, np.float32(0)),
                        np.random.default_rng(0).uniform(0, 2, 500).astype(np.float32)])[None]  # fmt: skip
    x = x[x <= 2 - 2.0**-mantissa][None]
    expected = np.array([[float(quantized(Fraction(float(v)), bits, mantissa, 2**highest)) for v in x[0]]])
    np.testing.assert_array_equal(run(program, x)["weights"], expected)
    for _, results in everywhere(program, x, ["weights"]):
        np.testing.assert_array_equal(results["weights"], expected)


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("top", [1.0, 0.3])
@pytest.mark.parametrize(("bits", "mantissa"), [f for f in FORMATS if f[0] in (2, 4, 8)])
def test_probabilities_of_the_paper_s_formula(bits: int, mantissa: int, top: float) -> None:
    x = hard_scores()[::40]
    # beta = 2^E - 1 + log2((2 - 2^-M) / top): the paper's bias, at which `top` is the greatest number.
    scale = 2 ** (2 ** (bits - mantissa) - 1) * (2 - Fraction(1, 2**mantissa)) / Fraction(top)
    p = softmax64(x)
    found = probabilities(default_program(METHOD, bits=bits, mantissa=mantissa, top=top), x)
    exact = [[quantized(Fraction(v), bits, mantissa, scale) for v in row] for row in p.tolist()]
    wrong = np.abs(found - np.array(exact, np.float64)) > 1e-6 * found
    for row, at in np.argwhere(wrong):  # only next to a border, where float32's p lies on its other side
        one = [quantized(Fraction(float(p[row, at]) * f), bits, mantissa, scale) for f in (1 - 1e-5, 1 + 1e-5)]
        assert one[0] != one[1]
    assert np.mean(wrong) < 1e-3
    assert len({v for row in exact for v in row}) > min(2**bits, 30) / 2


@pytest.mark.parametrize("scope", ["site", "head"])
def test_the_search_is_the_paper_s(scope: str) -> None:
    rng = np.random.default_rng(3)
    samples = [
        Sample((rng.normal(size=(3, 30)) * (0.5, 4.0)[h]).astype(np.float32),
               rng.normal(size=(30, 4)).astype(np.float32), h)
        for h in (0, 1)
    ]  # fmt: skip
    options = METHOD.configure({"bits": 3, "mantissa": scope, "top": scope})
    fitted = calibration.fit(METHOD, options, samples)

    def best(group: list[Sample]) -> tuple[float, float]:
        greatest = max(float(softmax64(s.scores).max()) for s in group)
        errors: dict[tuple[float, float], float] = {}
        for mantissa in range(3):
            exponent = 3 - mantissa
            start = 2**exponent - math.log2(greatest) + math.log2(2 - 2.0**-mantissa) - 1
            for k in range(101):
                bias = (0.01 + 1.19 * k / 100) * start
                top = (2 - 2.0**-mantissa) * 2.0 ** (2**exponent - 1 - bias)
                if top >= 2 * greatest:
                    continue  # no number of the highest binade is used
                error = 0.0
                for s in group:
                    assert s.values is not None
                    p, v = softmax64(s.scores), s.values.astype(np.float64)
                    y = np.minimum(p * 2.0**bias, (2 - 2.0**-mantissa) * 2.0 ** (2**exponent - 1))
                    step = 2.0 ** (np.maximum(np.floor(np.log2(y)), 1) - mantissa)
                    found = np.rint(y / step) * step * 2.0**-bias
                    error += float(np.sum(((found - p) @ v) ** 2) / np.sum((p @ v) ** 2))
                errors[mantissa, top] = error
        return min(errors, key=lambda k: errors[k])

    groups = [samples] if scope == "site" else [[samples[0]], [samples[1]]]
    for i, group in enumerate(groups):
        mantissa, top = (np.atleast_1d(fitted[name])[i] for name in ("mantissa", "top"))
        assert (mantissa, top) == pytest.approx(best(group), rel=1e-9)
    # The numbers, given to the emitted function at run time.
    program, values = METHOD.program(options), METHOD.parameters(options, fitted)
    x = np.stack([s.scores for s in samples])[None]
    out = run(program, x, params=values)
    host = session(to_model(program, values, shape=["b", "heads", "q", "N"], outputs=["weights", "normalizer"]))
    for theirs, name in zip(host.run(None, {"scores": x}), ("weights", "normalizer"), strict=True):
        np.testing.assert_array_equal(np.asarray(theirs), out[name])
    if scope == "head":
        (m, top) = (np.atleast_1d(fitted[name])[1] for name in ("mantissa", "top"))
        alone = probabilities(default_program(METHOD, bits=3, mantissa=float(m), top=float(top)), samples[1].scores)
        ours = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
        np.testing.assert_allclose(ours[0, 1], alone, rtol=1e-6)


def test_what_is_allowed() -> None:
    for bits, mantissa in ((4, 4), (8, 1), (4, 1.5)):
        with pytest.raises(UsageError, match=rf"mantissa is {mantissa:g} of {bits} bits; allowed is a whole number"):
            default_program(METHOD, bits=bits, mantissa=mantissa)
    assert METHOD.resolve(METHOD.configure({}), False).to_json() == {"bits": 4, "mantissa": 1, "top": 1}
    assert METHOD.resolve(METHOD.configure({"mantissa": 2}), True).fitted == {"top": "site"}
    with pytest.raises(UsageError, match="mantissa or top is auto"):
        METHOD.program(METHOD.configure({}))
