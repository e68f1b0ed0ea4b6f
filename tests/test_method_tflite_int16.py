"""TensorFlow Lite's 16-bit softmax: equal to the bit with its interpreter, and with a second derivation elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.methods.tflite_int16 import exponential_table, reciprocal_table
from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length
from tests.conformance import assert_conforms, program_of
from tests.litert import softmax

UNIT = 10 / 65535
EVERY = np.stack([np.full(65536, 32767), 32767 - np.arange(65536)], axis=1).astype(np.int16)


@pytest.mark.parametrize("step", [UNIT, 10 / 32768, 1e-3, 1e-5, 3e-6, 0.0625, 0.4, 5.0])
def test_equal_to_the_interpreter(step: float) -> None:
    program, rng = program_of("tflite-int16", {"step": step, "output": "int16"}, DType.I16), np.random.default_rng(1)
    cases = [EVERY]
    for length in (1, 3, 17, 197, 5000):
        spread = rng.choice([2, 100, 1000, 10000], size=(20, 1))
        peaked = np.clip(rng.normal(size=(20, length)) * spread, -32768, 32767).astype(np.int64)
        wide = rng.integers(-32768, 32768, size=(5, length))
        cases.append(np.concatenate([wide, peaked, np.zeros((1, length), np.int64)]).astype(np.int16))
    for x in cases:
        expected = softmax(x, step, np.int16, 1 / 32768, 0).astype(np.int64)
        np.testing.assert_array_equal(run(program, x)["weights"].astype(np.int64), expected)


def test_floats_and_integers_of_the_default_step_are_the_same() -> None:
    floats = (EVERY.astype(np.float64) * UNIT).astype(np.float32)
    for output in ("pair", "int16"):
        settings = {"output": output}
        ours = run(program_of("tflite-int16", settings), floats)
        theirs = run(program_of("tflite-int16", settings, DType.I16), EVERY)
        np.testing.assert_array_equal(ours["weights"], theirs["weights"])
        np.testing.assert_array_equal(ours["normalizer"], theirs["normalizer"].astype(np.float32))


def derivation(step: float, published: bool):
    exponentials, reciprocals = exponential_table(), reciprocal_table()
    real = step * 6553.5
    fraction, shift = math.frexp(real)
    multiplier = round(fraction * 2**31)

    def look_up(table: Sequence[int], value: int) -> int:
        """At a value from -32768 to 32767."""
        index, offset = 256 + (value >> 7), value & 127
        return table[index] + (((table[index + 1] - table[index]) * offset + 64) >> 7)

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        e: list[int] = []
        for d in row:
            product = math.floor(Fraction(-d * 2 ** max(shift, 0) * multiplier, 2**31) + Fraction(1, 2))
            scaled = -math.floor(Fraction(-product, 2 ** max(-shift, 0)) + Fraction(1, 2))
            e.append(look_up(exponentials, max(scaled + 32767, -32768)))
        total = sum(e)
        if not published:
            return e, total
        zeros = 32 - total.bit_length()
        half = ((total << (zeros - 1)) + 2**13) >> 14
        r = look_up(reciprocals, min(half - 2**16 - 2**15, 32767))
        return [min((v * r + 2 ** (30 - zeros)) >> (31 - zeros), 32767) for v in e], 32768

    return derive


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("output", ["pair", "int16"])
@pytest.mark.parametrize("step", [0.0625, 1e-4])
def test_on_every_backend(step: float, output: str) -> None:
    step = float(np.float32(step))
    settings = {"step": step, "output": output}
    kinds = (DType.F32, DType.I8, DType.I16)
    derive = derivation(step, output == "int16")
    assert_conforms("tflite-int16", settings, derive, unit=step, kinds=kinds, native=step == 0.0625)


def test_the_exponential_is_within_its_bound() -> None:
    out = run(program_of("tflite-int16", {}, DType.I16), EVERY)["weights"][:, 1].astype(np.float64)
    error = np.abs(out / 2**15 - np.exp(-np.arange(65536) * UNIT))
    assert np.max(error) <= 2e-4


def test_tables_in_single_precision_differ_as_stated() -> None:
    """As microcontrollers make theirs (internal/common.h, gen_lut), here with every step rounded to f32."""
    x = np.arange(1025, dtype=np.float32) / np.float32(1024)
    at = np.float32(32768) / (np.float32(1) + x)
    sample, middle = np.floor(at[::2] + np.float32(0.5)), np.floor(at[1::2] + np.float32(0.5))
    error = np.floor((at[2::2] + sample[:-1]) / np.float32(2) + np.float32(0.5)) - middle
    half = np.where(error >= 0, (error + 1) // 2, -((1 - error) // 2))
    table = np.minimum([*(sample[:-1] - half), sample[-1]], 32767).astype(int).tolist()
    ours = reciprocal_table()
    differing = {i: (theirs, ours[i]) for i, theirs in enumerate(table) if theirs != ours[i]}
    assert differing == {160: (24966, 24967), 294: (20816, 20815)}


def test_a_row_of_one_element_does_not_wrap() -> None:
    one = run(program_of("tflite-int16", {"output": "int16"}, DType.I16), np.zeros((1, 1), np.int16))["weights"]
    assert int(one[0, 0]) == 32767


def test_the_stated_length() -> None:
    assert largest_length(program_of("tflite-int16", {}), 2**18) == 131_096
    assert largest_length(program_of("tflite-int16", {}, DType.I16), 2**18) == 131_096
