"""Rows that are longer than a core takes: cut, marked, and the rows behind them are whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from softq.errors import ProofError
from softq.methods import METHODS
from softq.rowprog import DType, run
from softq.rtl import rtl, write_rtl
from softq.rtl.rehearsal import rehearse
from softq.vectors.rows import Row
from tests.simulators import check, compile_core, simulate

STALLS = ((100, 100), (70, 60), (100, 20))
STEP = {"step": 0.06}
CASES: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, object]]] = {
    "one lane": ("deferred-log", STEP, {"length": 40}),
    "packed": ("deferred-log", STEP, {"length": 37, "lanes": 4, "packed": True, "masked": True}),
    "gathered": ("deferred-log", STEP, {"length": 21, "packed": True}),
    "numbers": ("softermax", {**STEP, "output": "uint8"}, {"length": 17}),
    "one pass": ("relu", STEP, {"length": 10}),
    "rows of one beat": ("index-softmax", {**STEP, "output": "uint8"}, {"length": 2, "lanes": 2}),
    "heads": ("deferred-log", STEP, {"length": 9, "registers": True, "heads": 3}),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("case", CASES)
def test_rows_that_are_too_long_stop_nothing(tmp_path: Path, case: str) -> None:
    """The testbench has such rows, and others behind them."""
    method, settings, built = CASES[case]
    made = rtl(method, settings, rows=1, cut=True, **built)  # pyright: ignore[reportArgumentType]
    check(tmp_path, made, "iverilog", STALLS)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize("method", ["deferred-log", "ita", "shiftmax"])
def test_rows_beyond_a_thousand_elements_are_cut(tmp_path: Path, method: str, lanes: int) -> None:
    made = rtl(method, STEP, rows=20, lanes=lanes, length=1000, cut=True, masked=True)
    check(tmp_path, made, "verilator", (*STALLS, (30, 100)))


def test_a_cut_row_is_that_of_its_first_elements() -> None:
    """Words are taken apart by hand: a byte for the code, then the mark, then the end of the row."""
    scores = np.array([5, 3, -20, 4, -2, 100, 1], np.int8)
    method = METHODS.get("deferred-log")
    options = method.resolve(method.configure(STEP), False)
    out = run(method.program(options, scores=DType.I8), scores[None, :5])
    made = rtl("deferred-log", STEP, length=5, rows=0, cut=True)
    found = rehearse(made.core.plan, [Row("long", scores, np.ones(7, np.bool_))], 0)
    assert len(found.scores) == 7
    assert [word & 255 for word in found.results] == out["codes"][0].tolist()
    assert [word >> 8 for word in found.results] == [0, 0, 0, 0, 0b11]
    assert found.numbers == [out["normalizer"].item()]


def test_a_core_that_does_not_cut_waits(tmp_path: Path) -> None:
    """The same beats stop a core that is built without."""
    made = rtl("deferred-log", STEP, length=20, rows=1, cut=True)
    other = rtl("deferred-log", STEP, length=20, rows=1)
    write_rtl(replace(other, beats=made.beats), tmp_path)
    assert "FAIL: nothing moves" in simulate(tmp_path, compile_core(tmp_path, "deferred_log", "iverilog"))


def test_proofs_cover_whole_beats() -> None:
    """A row is cut behind a beat, so the longest one has as many elements as its beats."""
    plan = rtl("deferred-log", STEP, length=1021, lanes=4, rows=0, cut=True).core.plan
    assert plan.settings.elements == 1024
    assert plan.simplified.intervals[plan.numbers["normalizer"]].high == 1024 * 16384
    weights = {**STEP, "weight_bits": 24}
    rtl("deferred-log", weights, length=511, rows=0, cut=True)
    with pytest.raises(ProofError):
        rtl("deferred-log", weights, length=511, lanes=8, rows=0, cut=True)
