"""TensorFlow Lite's 8-bit softmax: equal to the bit with its interpreter, and with a second derivation elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from softq.methods._gemmlowp import exponentials
from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length, prove
from tests.conformance import assert_conforms, program_of
from tests.litert import softmax

FORMATS = {"int8": (np.int8, 1 / 256, -128, 8), "int16": (np.int16, 1 / 65536, -32768, 16)}


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("step", [0.003, 0.05, 0.0625, 0.2, 1.0, 3.0])
def test_equal_to_the_interpreter(output: str, step: float) -> None:
    kind, one, zero, _ = FORMATS[output]
    program, rng = program_of("tflite-int8", {"step": step, "output": output}, DType.I8), np.random.default_rng(1)
    every = np.stack([np.full(256, 127), 127 - np.arange(256), np.full(256, 100)], axis=1)
    for length in (3, 1, 2, 17, 197, 400, 4000):
        x = rng.integers(-128, 128, size=(30, length))
        if length < 500:
            # Its reference kernel ends the process where 512 elements are near the maximum and the format is int8.
            peaked = rng.normal(size=(60, length)) * rng.choice([1, 5, 30], size=(60, 1))
            x = np.concatenate([x, np.clip(peaked, -128, 127).astype(np.int64), np.zeros((1, length), np.int64)])
        elif output == "int8" and step < 0.05:
            continue
        x = (every if length == 3 else x).astype(np.int8)
        expected = softmax(x, step, kind, one, zero).astype(np.int64) - zero
        np.testing.assert_array_equal(run(program, x)["weights"].astype(np.int64), expected)


def high(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul as its source has it: a nudge, then a division towards 0."""
    product = a * b
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return nudged // 2**31 if nudged >= 0 else -(-nudged // 2**31)


def derivation(step: float, bits: int):
    table = exponentials(step, 256)

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        e = [table[d] for d in row]
        weights = [math.floor(v / 4096 + 0.5) for v in e]
        if not bits:
            return weights, sum(weights)
        total = sum(weights)
        zeros = 32 - total.bit_length()
        half = ((total << zeros) - 2**31 + 2**31 - 1 + 1) // 2
        x = 1515870810 + high(half, -1010580540)
        for _ in range(3):
            x += high(x, 2**29 - high(half, x)) * 4
        x = min(x * 2, 2**31 - 1)
        right = 12 - zeros + 31 - bits
        return [min((high(x, v) + 2 ** (right - 1)) >> right, 2**bits - 1) for v in e], 2**bits

    return derive


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("output", "bits"), [("pair", 0), ("int8", 8), ("int16", 16)])
def test_on_every_backend(output: str, bits: int) -> None:
    step = float(np.float32(0.06))
    settings = {"step": 0.06, "output": output}
    assert_conforms("tflite-int8", settings, derivation(step, bits), unit=step, native=output != "int8")


def test_the_exponential_is_within_its_bound() -> None:
    for step in (0.0625, 0.01, 1.0):
        found = np.array(exponentials(step, 256)) / 2**31
        assert np.max(np.abs(found - np.exp(-np.arange(256) * float(np.float32(step))))) <= 2.5e-7


def test_rows_longer_than_the_published_arithmetic_holds() -> None:
    for output in ("pair", "int16"):
        program = program_of("tflite-int8", {"output": output})
        assert prove(program, max_length=2**20).widest_bits <= 64
        for length in (4095, 4096, 5000, 60_000):
            out = run(program, np.zeros((1, length), np.float32))
            p = out["weights"].astype(np.float64) / out["normalizer"].astype(np.float64)
            assert np.max(np.abs(p * length - 1)) <= length / 2**17 + 1e-5
    assert largest_length(program_of("tflite-int8", {}), 2**20) == 2**20
