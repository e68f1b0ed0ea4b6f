"""What the description of a core says of it: clocks, tables, bits and intervals of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from softq.errors import UsageError
from softq.methods import METHODS
from softq.rowprog import DType, run
from softq.rtl import MadeCore, rtl, write_rtl
from softq.rtl.constraints import constraints
from softq.rtl.rehearsal import rehearse
from softq.vectors.rows import Row
from tests.rtl_rows import STALLS
from tests.simulators import check, compile_core, simulate

STEP = {"step": 0.06}


def clocks(folder: Path, made: MadeCore, length: int, rows: int) -> int:
    """Return the clocks that rows of one length take, one behind the other."""
    rng, plan = np.random.default_rng(0), made.core.plan
    scores = [rng.integers(-128, 128, length).astype(np.int8) for _ in range(rows)]
    found = rehearse(plan, [Row("random", row, np.ones(length, np.bool_)) for row in scores], 0)
    write_rtl(replace(made, beats=found), folder)
    said = simulate(folder, compile_core(folder, made.core.name, "iverilog"))
    passed = re.fullmatch(r"PASS: .* 0 wrong, (\d+) clocks", said)
    assert passed is not None, said
    return int(passed[1])


CASES: Mapping[str, tuple[str, Mapping[str, object], int, int, tuple[int, ...]]] = {
    "two passes": ("deferred-log", STEP, 64, 1, (1, 5, 64)),
    "numbers are computed": ("ita", {**STEP, "output": "uint8"}, 16, 1, (1, 8, 13, 16)),
    "lanes": ("index-softmax", {**STEP, "output": "uint8"}, 64, 4, (3, 30, 64)),
    "numbers take longer than a row": ("softermax", {**STEP, "output": "uint8"}, 32, 2, (1, 20, 32)),
    "one pass": ("relu", STEP, 20, 1, (1, 12, 20)),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("case", CASES)
def test_says_how_many_clocks_lie_between_rows(tmp_path: Path, case: str) -> None:
    """As many as more rows take in the simulation."""
    method, settings, length, lanes, lengths = CASES[case]
    made = rtl(method, settings, length=length, lanes=lanes, rows=0)
    for n in lengths:
        taken = clocks(tmp_path, made, n, 24) - clocks(tmp_path, made, n, 14)
        assert taken / 10 == made.core.interval(n), (n, made.core.clocks)


@pytest.mark.parametrize(("method", "output", "total"), [("ita", "uint8", 256), ("index-softmax", "uint8", 255)])
def test_numbers_that_no_row_changes_need_no_stream(tmp_path: Path, method: str, output: str, total: int) -> None:
    """They have one by default; without it the results leave though nobody takes numbers."""
    settings = {**STEP, "output": output}
    usual, short = (rtl(method, settings, length=16, rows=2, constants=each) for each in (True, False))
    assert [made.facts["constants"] for made in (usual, short)] == [{"normalizer": total}] * 2
    assert any(port.name.startswith("n_axis") for port in usual.core.plan.ports)
    assert "n_axis" not in short.core.text
    check(tmp_path, short, "iverilog", STALLS[:2])


def test_numbers_that_a_row_changes_stay() -> None:
    """The sum of weights, and the normalizer of a published format that a mask may make 0."""
    masked = rtl("ita", {**STEP, "output": "uint8"}, masked=True, length=16, rows=0, constants=False)
    summed = rtl("deferred-log", STEP, length=16, rows=0, constants=False)
    for made in (masked, summed):
        assert made.facts["constants"] == {}
        assert list(made.core.plan.numbers) == ["normalizer"]


@pytest.mark.parametrize("method", ["deferred-log", "ita", "e2softmax"])
def test_tables_hold_what_the_method_computes(method: str) -> None:
    """A row of a maximum and one more score says what each distance comes to."""
    made = rtl(method, STEP, rows=0, outputs=("weights", "normalizer"))
    tables = cast("list[Mapping[str, Any]]", made.facts["tables"])
    values = {value["name"]: value for value in cast("list[Mapping[str, Any]]", made.facts["values"])}
    pairs = np.stack([np.full(256, 127), np.arange(127, -129, -1)], axis=1).astype(np.int8)
    chosen = METHODS.get(method)
    program = chosen.program(chosen.resolve(chosen.configure(STEP), False), scores=DType.I8)
    expected = run(program, pairs)["weights"][:, 1]
    by_name = {table["gives"][0]: table for table in tables}
    (last,) = [table for table in tables if "weights" in table["gives"]]
    position = np.arange(256)
    if last["at"] in by_name:  # Weights are looked up at codes.
        position = np.array(by_name[last["at"]]["entries"])
    np.testing.assert_array_equal(np.array(last["entries"])[position], expected)
    found = values[last["gives"][0]]
    assert (found["low"], found["high"]) == (expected.min(), expected.max())
    assert found["bits"] == last["bits"] == int(expected.max()).bit_length()


def test_every_value_of_the_program_has_its_bits() -> None:
    """The sum of the weights of the longest row fits, and one bit less would not hold it."""
    made = rtl("deferred-log", STEP, rows=0, length=1024)
    values = cast("list[Mapping[str, Any]]", made.facts["values"])
    assert [value["pass"] for value in values] == sorted(value["pass"] for value in values)
    (total,) = [value for value in values if value["computes"].startswith("row_sum")]
    assert (total["high"], total["bits"]) == (1024 * 16384, 25)
    for value in values:
        least = -(1 << value["bits"] - 1) if value["signed"] else 0
        assert least <= value["low"] <= value["high"] < least + (1 << value["bits"])


def test_constraints_say_the_clock(tmp_path: Path) -> None:
    made = rtl("deferred-log", STEP, rows=0, length=16)
    names = {path.name for path in write_rtl(made, tmp_path, clock=125)}
    assert {"deferred_log.sdc", "deferred_log.xdc", "deferred_log.lpf"} < names
    assert (tmp_path / "deferred_log.sdc").read_text() == "create_clock -name aclk -period 8.000 [get_ports aclk]\n"
    assert constraints("core", 100)["core.lpf"] == 'FREQUENCY PORT "aclk" 100 MHZ;\n'
    with pytest.raises(UsageError, match="clock is 0; allowed is up to 2000 MHz, above 0"):
        write_rtl(made, tmp_path, clock=0)
