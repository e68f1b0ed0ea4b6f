"""hls4ml against Python fractions, and against what its own C++ gives for a few rows."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from softq.errors import UsageError
from softq.rowprog import DType, run
from softq.rowprog.ranges import largest_length
from tests.conformance import assert_conforms, program_of
from tests.rowhost import everywhere

HALF = Fraction(1, 2)

# Rows of ap_fixed<16, 6> in units of 2^-10, and what softmax_stable and softmax_latency of hls4ml (ef92ebd, compiled
# with its own ap_types, 1024 entries, fixed<18, 8> rounded and saturated) gave for them, in units of 2^-10.
SCORES = [
    [0, -100, -512, -1024, -1100, -2048, -3333, -5000, -7000, -7700, -8000, -20000, 512, 1024, 700, -31000],
    [2048] * 16,
    [3000, -28000, 2999, 1, 0, 0, -1, -2, 31, -31, 32, -32, 33, 1500, 2222, -2222],
]
GIVEN = {
    "stable": [
        [107, 98, 65, 39, 37, 14, 4, 0, 0, 0, 0, 0, 177, 293, 214, 0],
        [64] * 16,
        [315, 0, 315, 17, 17, 17, 17, 17, 17, 16, 17, 16, 17, 74, 148, 1],
    ],
    "latency": [
        [108, 95, 65, 39, 35, 14, 3, 0, 0, 0, 0, 0, 178, 293, 201, 0],
        [66] * 16,
        [319, 0, 319, 18, 18, 18, 16, 16, 18, 16, 18, 16, 18, 75, 150, 2],
    ],
}


@pytest.mark.parametrize("tables", GIVEN)
def test_rows_of_the_source(tables: str) -> None:
    x = (np.array(SCORES) / 1024).astype(np.float32)
    out = run(program_of("hls4ml", {"tables": tables, "output": "fixed"}), x)
    np.testing.assert_array_equal(out["weights"], GIVEN[tables])
    np.testing.assert_array_equal(out["normalizer"], 1024)


def table_value(value: float) -> int:
    """fixed<18, 8>, rounded half up and saturated, in units of 2^-10."""
    return min(math.floor(Fraction(value) * 1024 + HALF), 2**17 - 1)


def highest(operand: int, width: int, address: int) -> int:
    """The operand with nothing but its highest bits."""
    step = 2 ** max(width - address, 0)
    return operand // step * step


def share(e: Sequence[int], address: int, fraction: int) -> list[int]:
    """The product with the table's reciprocal of the sum."""
    total = highest(min(sum(e), 2**17 - 1), 18, address)
    inverse = table_value(1024 / total) if total else 2**17 - 1
    return [v * inverse // 2 ** (20 - fraction) for v in e]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("bits", "integer", "address", "output", "step", "inverse"), [
    (16, 6, 10, "pair", 0.125, "auto"), (16, 6, 10, "fixed", 0.125, "auto"), (8, 4, 10, "pair", 0.0625, "auto"),
    (10, 3, 5, "fixed", 0.03125, "auto"), (10, 3, 5, "fixed", 0.03125, 12), (12, 5, 10, "fixed", 0.03125, 4),
])  # fmt: skip
def test_stable(bits: int, integer: int, address: int, output: str, step: float, inverse: str | int) -> None:
    units = Fraction(step) * 2 ** (bits - integer)

    def derive(row: Sequence[int]) -> tuple[list[int], int]:
        e: list[int] = []
        for d in row:
            u = min(math.floor(d * units + HALF), 2 ** (bits - 1) - 1)
            e.append(table_value(math.exp(-highest(u, bits - 1, address) / 2 ** (bits - integer))))
        looked_up = address if isinstance(inverse, str) else inverse
        return (e, sum(e)) if output == "pair" else (share(e, looked_up, bits - integer), 2 ** (bits - integer))

    settings = {
        "bits": bits,
        "integer": integer,
        "address": address,
        "output": output,
        "step": step,
        "inverse": inverse,
    }
    assert_conforms("hls4ml", settings, derive, unit=step, native=bits == 16)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("bits", "integer", "address"), [(16, 6, 10), (8, 4, 10), (12, 5, 6)])
@pytest.mark.parametrize("output", ["pair", "fixed"])
@pytest.mark.parametrize("masked", [False, True])
def test_latency(bits: int, integer: int, address: int, output: str, masked: bool) -> None:
    fraction = bits - integer
    rng = np.random.default_rng(bits)
    raw = np.rint(rng.normal(size=(24, 31)) * 2.0 ** np.arange(fraction - 2, fraction + 4).repeat(4)[:, None])
    x = (raw / 2**fraction).astype(np.float32)
    keep = rng.random(x.shape) < 0.7 if masked else np.ones(x.shape, np.bool_)
    keep[3] &= not masked
    settings = {"bits": bits, "integer": integer, "address": address, "output": output, "tables": "latency"}
    weights, totals = np.zeros(x.shape, np.int64), np.zeros((len(x), 1), np.int64)
    for i, (row, kept) in enumerate(zip(raw.astype(int), keep, strict=True)):
        limits = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        ends = [highest(min(max(v, limits[0]), limits[1]), bits, address) for v in row[kept].tolist()]
        e = [table_value(math.exp(v / 2**fraction)) for v in ends]
        weights[i, kept] = e if output == "pair" else share(e, address, fraction)
        totals[i] = sum(e) if output == "pair" else 2**fraction * (sum(e) > 0)
    program = program_of("hls4ml", settings, masked=masked)
    valid = keep if masked else None
    found = list(everywhere(program, x, ["weights", "normalizer"], valid=valid))
    if bits == 16 and shutil.which("gcc"):
        pytest.importorskip("tvm")
        from tests.test_native_rows import MACHINES, MIDDLE, Host

        found += [("kernel", Host(program, MIDDLE)(x, valid=valid))] if MACHINES else []
    for name, out in found:
        np.testing.assert_array_equal(np.asarray(out["weights"]), weights, err_msg=name)
        np.testing.assert_array_equal(np.asarray(out["normalizer"]), totals, err_msg=name)
    # The same rows as 8-bit integers of the same step.
    if bits == 8:
        inside = np.clip(raw, -128, 127).astype(np.int8)
        program = program_of("hls4ml", settings, DType.I8, masked=masked)
        for name, out in everywhere(program, inside, ["weights", "normalizer"], valid=valid):
            np.testing.assert_array_equal(np.asarray(out["weights"]), weights, err_msg=name)


def test_latency_has_special_values_too() -> None:
    inf, nan = math.inf, math.nan
    x = np.array([[inf, 1, inf, -inf], [-inf] * 4, [nan, 1, 2, 3], [-9, -10, -11, -12], [100, 40, 5, 4]], np.float32)
    for output in ("pair", "fixed"):
        out = run(program_of("hls4ml", {"tables": "latency", "output": output}), x)
        assert (out["weights"][0] / out["normalizer"][0]).tolist() == [0.5, 0, 0.5, 0]
        assert out["weights"][1].tolist() == out["weights"][3].tolist() == [0] * 4
        assert out["normalizer"][[1, 3], 0].tolist() == [0, 0]
        assert math.isnan(out["normalizer"][2, 0])
        assert out["weights"][4, 0] == out["weights"][4, 1] >= out["weights"][4, 3] > 128


def test_a_score_far_below_the_maximum_does_not_come_back() -> None:
    # There, 32.5 below the maximum counts as 0.5 below it: 683 and 414 of 1024.
    x = np.array([[16, -16.5] + [0] * 14, [16, -20] + [0] * 14], np.float32)
    for output in ("pair", "fixed"):
        weights = run(program_of("hls4ml", {"output": output}), x)["weights"]
        assert weights[:, 0].tolist() == [1024, 1024]
        assert not np.any(weights[:, 1:])


def test_the_stated_lengths_and_the_types_that_there_are() -> None:
    for kind in (DType.F32, DType.I8):
        assert largest_length(program_of("hls4ml", {}, kind), 2**24) == 2**22 - 1
        assert largest_length(program_of("hls4ml", {"tables": "latency"}, kind), 2**24) == 2**24
    with pytest.raises(UsageError, match=r"inverse is 12\.0 with output=pair; it is a whole number, for output=fixed"):
        program_of("hls4ml", {"inverse": 12})
    with pytest.raises(UsageError, match=r"inverse is 10\.5 with output=fixed; it is a whole number"):
        program_of("hls4ml", {"inverse": 10.5, "output": "fixed"})
    with pytest.raises(UsageError, match="bits is 6 and integer 8"):
        program_of("hls4ml", {"bits": 6, "integer": 8})


def test_the_published_sums() -> None:
    for n, spread, low, high in ((16, 4, 0.9, 1.1), (64, 1, 0.9, 1.1), (197, 2, 0.9, 1.1), (1024, 1, 0.54, 0.6)):
        x = (np.random.default_rng(n).normal(size=(200, n)) * spread).astype(np.float32)
        p = run(program_of("hls4ml", {"output": "fixed"}), x)["weights"].astype(np.float64) / 1024
        assert low < float(np.mean(p.sum(axis=-1))) < high
        e = run(program_of("hls4ml", {}), x)["weights"].astype(np.float64) / 1024
        error = np.abs(e - np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64)))
        assert np.max(error) <= 2.0**-5 + 2.0**-10  # a step of the table, rounding of score and entry
