"""Cores whose products share one unit that computes a bit at a clock."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.codegen.verilog.core import write_core
from softq.codegen.verilog.plan import CorePlan, Settings
from softq.errors import RefusalError, SoftqError, UsageError
from softq.rowprog import DType, Program, Trace
from softq.rtl import MadeCore, rtl
from softq.rtl.rehearsal import rehearse
from softq.vectors.rows import choose
from tests.rtl_rows import settings_of
from tests.simulators import check
from tests.test_verilog_facts import clocks

STALLS = ((100, 100), (70, 30))

CASES: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, object]]] = {
    "products of a row's numbers, too": ("tflite-int8", {"output": "int8"}, {"length": 40}),
    "a mask": ("softermax", {"output": "uint8"}, {"length": 9, "masked": True, "scores": "u8"}),
    "divisions": ("index-softmax", {"output": "uint8"}, {"length": 9}),
    "rows that are cut": ("hls4ml", {"output": "fixed"}, {"length": 9, "cut": True}),
    "factors of one bit": ("sigmoid", {}, {"length": 1}),
    "heads": ("shiftmax", {"output": "int8"}, {"length": 9, "registers": True, "heads": 2}),
}


SLOW = ("products of a row's numbers, too", "divisions", "heads")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in CASES]
)
def test_gives_what_the_interpreter_gives(tmp_path: Path, case: str) -> None:
    method, settings, built = CASES[case]
    made = rtl(method, {**settings_of(method), **settings}, rows=1, products="serial", **built)  # pyright: ignore[reportArgumentType]
    assert made.core.resources.mult18 == 0
    assert " * " not in re.sub(r"//.*", "", made.core.text)
    check(tmp_path, made, "iverilog", STALLS)


def _two_passes() -> Program:
    """Return a program with products in both of its passes, and in the numbers behind each."""
    t = Trace("toy", scores=DType.U8)
    x = t.cast(t.scores, DType.I64)
    squares = t.row_sum(x * x)
    scale = (squares >> 8) * 3
    shifted = (x * scale) >> 4
    total = t.row_sum(shifted)
    return t.program(weights=t.cast(shifted >> 8, DType.U32), normalizer=total * (squares >> 12))


def _made(program: Program, length: int, rows: int) -> MadeCore:
    plan = CorePlan(program, Settings(length, products="serial"))
    core = write_core(plan, "toy")
    found = rehearse(plan, choose(program, {}, [n for n in (1, 2, 3, 7, length) if n <= length], rows, 0), 0)
    facts = {**core.describe(), "method": "toy"}
    return MadeCore(core, found, facts)


@pytest.mark.parametrize("length", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_passes_take_turns(tmp_path: Path, length: int) -> None:
    """Elements of two passes, the first of which takes them from the stream, and numbers behind both."""
    made = _made(_two_passes(), length, 4)
    assert [each.steps for each in made.core.clocks] == [True, True]
    assert [each.shared for each in made.core.clocks] == [True, True]
    check(tmp_path, made, "iverilog", STALLS)


@pytest.mark.parametrize("case", ["products of a row's numbers, too", "rows that are cut"])
def test_says_how_many_clocks_a_row_takes(tmp_path: Path, case: str) -> None:
    """The latency of a row, and the clocks from one to the next, which have the unit in turns."""
    method, settings, _ = CASES[case]
    made = rtl(method, {**settings_of(method), **settings}, length=8, rows=0, products="serial")
    core = made.core
    assert core.describe()["element_interval"] == core.clocks[-1].interval > 8
    for length in (1, 8):
        assert clocks(tmp_path, made, length, 1) == core.latency(length)
        taken = clocks(tmp_path, made, length, 24) - clocks(tmp_path, made, length, 14)
        assert taken / 10 == core.interval(length)


def test_an_element_takes_as_long_as_its_product() -> None:
    """Factors of 31 bits; with a shift by what is not always dropped alone it is no longer."""
    core = rtl("tflite-int8", {**settings_of("tflite-int8"), "output": "int8"}, rows=0, products="serial").core
    (multiplied,) = [node for node in core.plan.phases[-1].rows if node.op == "mul"]
    bits = [core.plan.field(node).width for node in multiplied.args]
    assert bits == [31, 31]
    assert bits[0] < core.clocks[-1].interval <= bits[0] + 12
    (by,) = [n.args[1] for n in core.plan.phases[-1].rows if n.op == "shr" and n.args[1].op != "const"]
    assert core.plan.simplified.intervals[by].low == 0


@pytest.mark.parametrize(
    ("method", "changed", "error", "text"),
    [
        ("deferred-log", {}, RefusalError, "has no product of elements"),
        ("edge-moe", {}, RefusalError, "without a scan"),
        ("hls4ml", {"lanes": 2}, UsageError, "lanes is 2, allowed is 1"),
        ("hls4ml", {"products": "some"}, UsageError, "products is 'some'; allowed is parallel or serial"),
    ],
)
def test_refuses(method: str, changed: Mapping[str, object], error: type[SoftqError], text: str) -> None:
    given = {"products": "serial", **changed}
    with pytest.raises(error, match=text) as raised:
        rtl(method, settings_of(method), **given)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(raised.value)


def test_refuses_products_of_two_negative_values() -> None:
    t = Trace("toy", scores=DType.I8)
    x = t.cast(t.scores, DType.I32)
    with pytest.raises(RefusalError, match="two factors that may be negative"):
        CorePlan(t.program(weights=x * x, normalizer=t.row_sum(x)), Settings(16, products="serial"))


def test_the_command_takes_it(tmp_path: Path) -> None:
    """The description says how, and a refusal is one line and exit code 2."""
    given = ["--set", "output=fixed", "--length", "16", "--products", "serial", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, ["rtl", "hls4ml", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts = json.loads((tmp_path / "hls4ml.json").read_text())
    assert facts["products"] == "serial"
    assert facts["estimate"]["mult18"] == 0
    assert facts["element_interval"] > 1
    refused = CliRunner().invoke(main, ["rtl", "ita", "--set", "step=0.06", *given[2:]])
    assert refused.exit_code == 2
