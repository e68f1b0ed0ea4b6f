"""Bias correction of probabilities in a fixed format: Python integers on the codes that come out without it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, run
from softq.rowprog.ranges import prove
from tests.conformance import assert_conforms, program_of

STEP = 0.0625
FORMATS: Sequence[tuple[str, Mapping[str, object], float, int, int]] = (
    ("e2softmax", {"output": "uint8"}, 2.0**-4, 255, 256),
    ("hls4ml", {"output": "fixed", "bits": 9, "integer": 5, "address": 7}, STEP, 255, 2**4),
    ("i-exp", {"output": "uint8", "step": STEP}, STEP, 255, 256),
    ("index-softmax", {"output": "uint8"}, 6.6 / 31, 31, 255),
    ("ita", {"output": "uint8"}, math.log(2) / 32, 255, 256),
    ("qlinear", {"output": "uint8"}, STEP, 255, 256),
    ("shiftmax", {"output": "int8", "step": STEP}, STEP, 255, 128),
    ("shiftmax", {"output": "int16", "step": STEP}, STEP, 255, 2**15),
    ("softermax", {"output": "uint8"}, math.log(2) / 4, 255, 128),
    ("tflite-int8", {"output": "int8"}, STEP, 255, 256),
    ("tflite-int8", {"output": "int16"}, STEP, 255, 2**16),
    ("tflite-int16", {"output": "int16"}, 10 / 65535, 2047, 2**15),
    ("xnn-qu8", {"output": "uint8"}, STEP, 255, 256),
)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "settings", "unit", "largest", "one"), FORMATS)
def test_the_arithmetic(name: str, settings: Mapping[str, object], unit: float, largest: int, one: int) -> None:
    plain = program_of(name, settings)
    corrected: list[int] = []

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        scores = (2.0 - np.array(row) * unit).astype(np.float32)[None]
        codes = [int(code) for code in run(plain, scores)["weights"][0]]
        surplus = sum(codes) - one
        z = abs(surplus) * 256 // len(codes) * (1 if surplus > 0 else -1)
        corrected.append(z)
        weights = [code * 256 - z for code in codes]
        # What is rounded off z is less than a unit an element.
        assert abs(sum(weights) - one * 256) < len(weights)
        return weights, one * 256

    kinds = [DType.F32] + [DType.I8] * (unit == STEP)
    assert_conforms(name, {**settings, "bias": "query"}, derive, unit=unit, largest=largest, kinds=kinds)
    assert min(corrected) < 0


@pytest.mark.parametrize("kind", [DType.F32, DType.I8])
def test_masked_elements_are_neither_counted_nor_corrected(kind: DType) -> None:
    settings = {"output": "uint8", "bias": "query"}
    x = np.zeros((2, 40), kind.numpy)
    valid = np.arange(40) < np.array([[30], [0]])
    out = run(program_of("xnn-qu8", settings, kind, masked=True), x, valid=valid)
    # 30 equal elements: 256 / 30 is 8.53, so that each has the code 9, 14 too many in all.
    assert out["weights"].tolist() == [[9 * 256 - 14 * 256 // 30] * 30 + [0] * 10, [0] * 40]
    assert out["normalizer"].tolist() == [[256.0 * 256], [0.0]]


def test_long_rows_are_proved() -> None:
    for name, settings, *_ in FORMATS:
        prove(program_of(name, {**settings, "bias": "query"}), max_length=65536)


def test_what_has_no_mean_error_to_take_off() -> None:
    for name in dict.fromkeys(name for name, *_ in FORMATS):
        with pytest.raises(UsageError, match="bias is query, but the output is a pair"):
            METHODS.get(name).program(METHODS.get(name).configure({"bias": "query", "output": "pair"}))
    with pytest.raises(UsageError, match=r"the code of 1 is 255\.5, which is no whole number"):
        program_of("qlinear", {"bias": "query", "output": "uint8", "levels": 255.5})


@pytest.mark.parametrize(("name", "settings", "length", "spread", "before", "after"), [
    ("hls4ml", {"output": "fixed"}, 1024, 1, 0.43, 0.017),
    ("hls4ml", {"output": "fixed"}, 197, 4, 0.088, 0.075),
    ("hls4ml", {"output": "fixed", "inverse": 14}, 197, 4, 0.013, 0.007),
    ("e2softmax", {"output": "uint8"}, 1024, 1, 0.50, 0.049),
    ("e2softmax", {"output": "uint8"}, 197, 4, 0.12, 0.10),
])  # fmt: skip
def test_what_it_is_worth_where_a_table_or_a_logarithm_divides(
    name: str, settings: Mapping[str, object], length: int, spread: float, before: float, after: float
) -> None:
    """The relative error of P V that the methods' texts state, on other rows than those that it was read off."""
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(64, length)) * spread).astype(np.float32)
    v = rng.normal(size=(length, 64)) + 0.5
    e = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64))
    exact = e / e.sum(axis=-1, keepdims=True) @ v
    for bias, expected in (("none", before), ("query", after)):
        out = run(program_of(name, {**settings, "bias": bias}), x)
        p = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
        error = np.linalg.norm(p @ v - exact)
        assert error / np.linalg.norm(exact) == pytest.approx(expected, rel=0.15)


def test_codes_too_wide_for_a_fraction_are_refused() -> None:
    settings = {"output": "fixed", "tables": "latency", "bits": 18, "integer": 2, "address": 4, "bias": "query"}
    with pytest.raises(UsageError, match="bias is query, but codes up to 48275087 leave no 8 fraction bits"):
        program_of("hls4ml", settings)
