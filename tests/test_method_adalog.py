"""adalog against its formula in plain Python numbers, and its fit against a search of its own."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from softq import calibration
from softq.errors import UsageError
from softq.methods import METHODS, Sample
from softq.rowprog import run
from softq.rowprog.onnx import to_model
from tests.rowhost import session
from tests.test_methods import default_program, hard_scores, probabilities, softmax64

METHOD = METHODS.get("adalog")


def decoded(code: int, q: int, bits: int) -> float:
    """T2 / D * 2^-T1 of a whole q, the mantissa by 50 decimal digits."""
    with localcontext() as context:
        context.prec = 50
        greatest = 2 ** (bits + 1) - 2
        exact = Decimal(greatest) / Decimal(2) ** (Decimal(code * q % 37) / 37)
        return int(exact.to_integral_value()) / greatest * 2.0 ** -(code * q // 37)


@pytest.mark.parametrize("zero", ["code", "beyond"])
@pytest.mark.parametrize(("bits", "q"), [(2, 74), (3, 49), (3, 33), (4, 22), (4, 37), (6, 10), (8, 3)])
def test_codes_and_values_of_the_formula(bits: int, q: int, zero: str) -> None:
    x = hard_scores()
    out = run(default_program(METHOD, bits=bits, q=q, zero=zero), x)
    top = 2**bits - (zero == "code")
    with np.errstate(divide="ignore", invalid="ignore"):
        level = -np.log2(softmax64(x)) * 37 / q
    wrong = out["codes"] != np.minimum(np.rint(level), top)
    # float32 has each level to within some 2^-20 of itself, so that a code next to a border may be its neighbour.
    near = np.abs(np.minimum(level, 1e6) % 1 - 0.5) < 2e-6 * level + 1e-5
    assert not np.any(wrong & ~near)
    assert np.mean(wrong) <= 1e-5 * max(1, 2 ** (bits - 4))
    table = np.array([decoded(c, q, bits) for c in range(top)] + [0.0])
    np.testing.assert_array_equal(
        out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64), table[out["codes"].astype(int)]
    )
    assert len(np.unique(out["codes"])) > 0.9 * min(top, 120)


def test_the_table_of_the_paper_for_four_bits() -> None:
    # D = 30; q = 30: c q = 30, 60, 90 leave 30, 23, 16 of 37 parts and 0, 1, 2 whole octaves.
    values = [decoded(c, 30, 4) * 30 for c in range(4)]
    assert values == [30, 17, 19 / 2, 22 / 4]
    x = np.log(np.array([[1.0, 2 ** (-30 / 37), 2 ** (-60 / 37), 2 ** (-90 / 37)]])).astype(np.float32)
    total = float(np.exp(x.astype(np.float64)).sum())
    shift = round(math.log2(total) * 37 / 30)  # how many codes the sum moves all of them
    out = run(default_program(METHOD, bits=4, q=30), x)
    assert abs(math.log2(total) * 37 / 30 - shift) < 0.45
    assert out["codes"].tolist() == [[shift, shift + 1, shift + 2, shift + 3]]


def test_more_bits_reach_further_down() -> None:
    assert METHOD.candidates is not None
    low = [min(METHOD.candidates(METHOD.configure({"bits": b}), "q")) for b in (2, 5, 6, 7, 8)]
    assert low == [10, 10, 4, 2, 1]


@pytest.mark.parametrize("scope", ["site", "head"])
def test_q_is_that_of_the_least_error_of_the_output(scope: str) -> None:
    rng = np.random.default_rng(2)
    spread = (0.7, 3.0)
    samples = [
        Sample(
            (rng.normal(size=(4, 40)) * spread[h]).astype(np.float32), rng.normal(size=(40, 8)).astype(np.float32), h
        )
        for h in (0, 1, 0, 1)
    ]
    options = METHOD.configure({"bits": 3, "q": scope})
    fitted = calibration.fit(METHOD, options, samples)["q"]

    def best(group: list[Sample]) -> float:
        errors: dict[int, float] = {}
        for q in range(10, 138):
            errors[q] = 0.0
            table = np.array([decoded(c, q, 3) for c in range(7)] + [0.0])
            for s in group:
                assert s.values is not None
                p, v = softmax64(s.scores), s.values.astype(np.float64)
                found = table[np.minimum(np.rint(-np.log2(p) * 37 / q), 7).astype(int)]
                errors[q] += float(np.sum(((found - p) @ v) ** 2) / np.sum((p @ v) ** 2))
        return min(errors, key=lambda q: errors[q])

    if scope == "site":
        assert fitted == best(samples)
    else:
        assert fitted == tuple(best([s for s in samples if s.head == h]) for h in (0, 1))
    # The same numbers, given to the emitted function at run time, give what the constant ones give.
    if scope == "site":
        program, values = METHOD.program(options), METHOD.parameters(options, {"q": fitted})
        x = hard_scores()[::7]
        alone = run(default_program(METHOD, bits=3, q=fitted), x)
        np.testing.assert_array_equal(run(program, x, params=values)["weights"], alone["weights"])
        (weights,) = session(to_model(program, values, outputs=["weights"])).run(None, {"scores": x})
        assert np.mean(np.asarray(weights) != alone["weights"]) <= 1e-5


def test_without_data_the_range_is_that_of_four_bits() -> None:
    rates = {b: METHOD.resolve(METHOD.configure({"bits": b}), False).to_json()["q"] for b in range(2, 9)}
    assert rates == {2: 74, 3: 49, 4: 37, 5: 18.5, 6: 9.25, 7: 4.625, 8: 2.3125}
    assert METHOD.resolve(METHOD.configure({}), True).fitted == {"q": "site"}
    with pytest.raises(UsageError, match="adalog: q is auto"):
        METHOD.program(METHOD.configure({}))
    with pytest.raises(UsageError, match=r"adalog q is 0\.5; allowed is a number from 1 to 137"):
        METHOD.configure({"q": 0.5})


def test_it_is_log2_where_the_base_is_two() -> None:
    x = hard_scores()
    ours = probabilities(default_program(METHOD, bits=4, q=37), x)
    np.testing.assert_array_equal(ours, probabilities(default_program(METHODS.get("log2"), bits=4), x))


def test_signal_to_noise_of_independent_scores() -> None:
    """Within half a decibel of what an independent model of the method gave: 13.3, 19.2 and 25.4 dB."""
    x = (np.random.default_rng(0).normal(size=(64, 197)) * 2).astype(np.float32)
    p = softmax64(x)
    for bits, q, decibels in ((3, 33, 13.3), (4, 22, 19.2), (6, 10, 25.4)):
        found = probabilities(default_program(METHOD, bits=bits, q=q, zero="beyond"), x)
        assert abs(10 * math.log10(np.sum(p**2) / np.sum((found - p) ** 2)) - decibels) < 0.5
