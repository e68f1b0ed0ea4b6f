"""Results that share bytes, and the bytes that a beat of results keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, run
from softq.rtl import rtl, write_rtl
from softq.rtl.rehearsal import rehearse
from softq.vectors.rows import Row
from tests.simulators import check, compile_core, simulate

STALLS = ((100, 100), (70, 60), (100, 20))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("bits", "lanes"), [(4, 1), (4, 2), (4, 4), (3, 2), (2, 1), (2, 2), (2, 8)])
def test_packed_results_are_what_the_interpreter_gives(tmp_path: Path, bits: int, lanes: int) -> None:
    """Rows that end within a byte are among them."""
    made = rtl("deferred-log", {"step": 0.06, "bits": bits}, length=35, lanes=lanes, packed=True, rows=2)
    check(tmp_path, made, "iverilog", STALLS)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_packed_results_of_long_rows(tmp_path: Path, bits: int, lanes: int) -> None:
    made = rtl("deferred-log", {"step": 0.06, "bits": bits}, lanes=lanes, packed=True, masked=True, rows=20)
    check(tmp_path, made, "verilator", (*STALLS, (30, 100)))


def test_heads_stay_with_their_packed_rows(tmp_path: Path) -> None:
    settings = {"step": 0.06}
    made = rtl("deferred-log", settings, length=20, packed=True, registers=True, heads=3, rows=1)
    check(tmp_path, made, "iverilog", STALLS[:2])


@pytest.mark.parametrize(("lanes", "beats"), [(1, 3), (2, 3), (4, 2)])
def test_the_first_result_is_in_the_lowest_bits(lanes: int, beats: int) -> None:
    """Words are taken apart by hand: data, bytes that are kept where there are several, the end of the row."""
    scores = np.array([[5, 3, -20, 4, -2]], np.int8)
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure({"step": 0.06}), False)
    codes = run(method.program(options, scores=DType.I8), scores)["codes"][0].tolist()
    made = rtl("deferred-log", {"step": 0.06}, length=5, lanes=lanes, packed=True, rows=0)
    words = rehearse(made.core.plan, [Row("one", scores[0], np.ones(5, np.bool_))], 0).results
    assert len(words) == beats
    size = 2 if lanes == 4 else 1
    data = b"".join((word & (1 << 8 * size) - 1).to_bytes(size, "little") for word in words)
    nibbles = [nibble for byte in data for nibble in (byte & 15, byte >> 4)]
    assert nibbles[:5] == codes
    assert not any(nibbles[5:])
    assert [word >> 8 * size for word in words] == ([0b011, 0b101] if size == 2 else [0, 0, 1])


def test_wide_results_keep_bytes(tmp_path: Path) -> None:
    """AXI4-Stream has a bit of tkeep for each byte, so two for each weight of 15 bits."""
    made = rtl("deferred-log", {"step": 0.06}, length=35, lanes=2, outputs=("weights",), rows=2)
    widths = {port.name: port.width for port in made.core.plan.ports}
    assert (widths["m_axis_tdata"], widths["m_axis_tkeep"]) == (32, 4)
    check(tmp_path, made, "iverilog", STALLS[:2])


def test_packing_adds_the_clock_that_it_says(tmp_path: Path) -> None:
    plain = rtl("deferred-log", {"step": 0.06}, length=8, rows=0)
    made = rtl("deferred-log", {"step": 0.06}, length=8, packed=True, rows=0)
    assert made.core.latency(3) == plain.core.latency(3) + 1
    row = Row("one", np.array([1, 2, 3], np.int8), np.ones(3, np.bool_))
    write_rtl(replace(made, beats=rehearse(made.core.plan, [row], 0)), tmp_path)
    said = simulate(tmp_path, compile_core(tmp_path, "deferred_log", "iverilog"))
    assert said.endswith(f" {made.core.latency(3)} clocks"), said


def test_results_that_fill_a_byte_are_not_packed() -> None:
    with pytest.raises(UsageError, match=r"packed is for results of at most 4 bits; weights of program .* are of 15"):
        rtl("deferred-log", {"step": 0.06}, outputs=("weights",), packed=True)
