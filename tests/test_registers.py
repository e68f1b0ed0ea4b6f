"""Tables of a core that are written while it runs: per head, between rows and during them, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.codegen.verilog.core import write_core
from softq.codegen.verilog.plan import CorePlan, Settings
from softq.errors import RefusalError, SoftqError, UsageError
from softq.methods import METHODS
from softq.rowprog import DType, Program, Trace, Value
from softq.rtl import MadeCore, rtl, write_rtl
from softq.rtl.beats import Beats
from softq.rtl.rehearsal import rehearse
from softq.vectors.rows import choose
from tests.rtl_rows import INTEGER, REFUSED, STALLS
from tests.simulators import check, compile_core, simulate

ROOT = Path(__file__).resolve().parent.parent
STEP = {"step": 0.06}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("method", "heads", "lanes", "masked"),
    [("deferred-log", 3, 2, False), ("deferred-log", 1, 1, False), ("e2softmax", 2, 1, True)],
)
def test_gives_what_the_tables_say(tmp_path: Path, method: str, heads: int, lanes: int, masked: bool) -> None:
    """Rows of all heads, before and after tables are written, and while those of another head are."""
    made = rtl(method, STEP, length=20, lanes=lanes, masked=masked, registers=True, heads=heads, rows=1)
    check(tmp_path, made, "iverilog", STALLS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 5])
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("method", INTEGER)
def test_gives_what_the_tables_of_every_method_say(tmp_path: Path, method: str, lanes: int, heads: int) -> None:
    """Each method that can be a core."""
    settings = STEP if "step" in METHODS.get(method).options.specs() else {}
    if method in REFUSED:
        with pytest.raises(RefusalError):
            rtl(method, settings, registers=True, heads=heads)
        return
    make = partial(rtl, method, settings, length=200, registers=True, heads=heads, rows=4)
    made = make()
    if lanes > 1 and any(node.op == "scan" for node in made.core.plan.program.nodes()):
        with pytest.raises(RefusalError, match="a scan takes one element after the other"):
            make(lanes=lanes)
        return
    made = make(lanes=lanes)
    check(tmp_path, made, "verilator", STALLS)


def _toy(table: Callable[[Trace], Value]) -> Program:
    """Return a program that looks scores up in a table."""
    t = Trace("toy", structure="", scores=DType.U8, masked=False, contract=False)
    entry = t.cast(t.lut(table(t), t.cast(t.scores, DType.I32)), DType.I32)
    return t.program(weights=entry, normalizer=t.row_sum(entry))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("low", "high"), [(-5, 9), (-8, 7), (3, 200), (0, 255), (-(2**15), 2**15 - 1)])
def test_an_entry_lies_in_the_interval_of_its_table(tmp_path: Path, low: int, high: int) -> None:
    """A parameter that a program declares, with a sign or without, within its bits or less: others are refused."""
    program = _toy(lambda t: t.param("offsets", "head", DType.I16, low, high, "what is added", 256))
    initial = [[low + at % (high - low + 1) for at in range(256)] for _ in range(2)]
    plan = CorePlan(program, Settings(16, heads=2), {"offsets": initial})
    found = rehearse(plan, choose(program, {}, [1, 3, 16], 2, 0), 0)
    check(tmp_path, MadeCore(write_core(plan, "toy"), found, {}), "iverilog", STALLS[:2])


@pytest.mark.parametrize("changed", [("", ""), ("axil_ar_full & ~axil_done &", "axil_ar_full &")])
def test_reads_and_writes_do_not_wait_for_each_other(tmp_path: Path, changed: tuple[str, str]) -> None:
    """At the same time, each as fast as the port takes it; a port whose reads ignore writes is found."""
    program = _toy(lambda t: t.param("offsets", "site", DType.U8, 0, 15, "what is added", 256))
    plan = CorePlan(program, Settings(16), {"offsets": [[at % 16 for at in range(256)]]})
    text = write_core(plan, "toy").text
    assert changed[0] in text
    (tmp_path / "toy.v").write_text(text.replace(*changed))
    shutil.copy(Path(__file__).parent / "register_port_tb.v", tmp_path / "toy_tb.v")
    command = compile_core(tmp_path, "toy", "iverilog")
    said = [simulate(tmp_path, [*command, f"+share={share}"], seed=share) for share in (100, 60, 20)]
    assert all(line.startswith("PASS") for line in said) != bool(changed[0]), said


def test_says_how_many_clocks_a_row_takes(tmp_path: Path) -> None:
    """The stated latency is that of the simulation."""
    for method, lanes, heads in (("deferred-log", 1, 1), ("exaq", 2, 3)):
        made = rtl(method, STEP, length=33, lanes=lanes, registers=True, heads=heads, rows=1)
        beats = Beats(made.beats.scores[:1], made.beats.results[:1], made.beats.numbers[:1])
        folder = tmp_path / method
        write_rtl(MadeCore(made.core, beats, made.facts), folder)
        said = simulate(folder, compile_core(folder, made.core.name, "iverilog"))
        assert said.endswith(f" {made.core.latency(1)} clocks"), (method, said)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (lambda t: t.param("wide", "site", DType.I64, 0, 2**40, "too wide", 256), "parameter wide has 41 bits"),
        (lambda t: t.param("real", "site", DType.F32, 0, 1, "no integer", 256), "param real.* is a float"),
    ],
)
def test_refuses_parameters(declared: Callable[[Trace], Value], message: str) -> None:
    """What a register cannot hold is named."""
    t = Trace("toy", structure="", scores=DType.U8, masked=False, contract=False)
    entry = t.lut(declared(t), t.cast(t.scores, DType.I32))
    with pytest.raises(RefusalError, match=message):
        CorePlan(t.program(weights=entry, normalizer=t.row_max(entry)), Settings(16), {"wide": [[0] * 256]})


def test_refuses_a_number() -> None:
    """A parameter that is a number has no register."""
    t = Trace("toy", structure="", scores=DType.U8, masked=False, contract=False)
    weights = t.cast(t.scores, DType.I32) + t.param("offset", "site", DType.I32, 0, 9, "what is added")
    with pytest.raises(RefusalError, match="parameter offset is a number"):
        CorePlan(t.program(weights=weights, normalizer=t.row_max(weights)), Settings(16), {})


def test_the_page_names_the_tables_of_every_method() -> None:
    """docs/fpga.md lists what is behind the port."""
    listed = re.findall(
        r"^\| `([a-z0-9-]+)` \| (`.* bits) \|$", (ROOT / "docs/fpga.md").read_text("utf-8"), re.MULTILINE
    )
    found: dict[str, str] = {}
    for method in (name for name in INTEGER if name not in REFUSED):
        settings = STEP if "step" in METHODS.get(method).options.specs() else {}
        tables = rtl(method, settings, length=8, rows=0, registers=True).core.plan.registers
        found[method] = "; ".join(f"`{table.name}`, {table.size} of {table.width} bits" for table in tables)
    assert dict(listed) == found


MUTANTS: Mapping[str, tuple[str, str]] = {
    "the head of a row is that of the first": (r"<= s_axis_tid;", "<= 0;"),
    "a part of a word is written": (r"axil_done & axil_whole &", "axil_done &"),
    "an entry outside its interval is written": (r"& \(axil_value\[31:15\] == 17'd0\)", ""),
    "a refused write is answered like another": (r"axil_refused_write <= .*;", "axil_refused_write <= 1'b0;"),
    "no row is ever in the core": (r"assign axil_busy = .*;", "assign axil_busy = 1'b0;"),
    "a row never leaves": (r"axil_left_0 <= .*;", "axil_left_0 <= 1'b0;"),
    "the entry that is read back is that of the write before": (r"axil_done \? axil_waddr : axil_raddr", "axil_waddr"),
    "a head that is not there is written": (r" & \(axil_waddr\[11:10\] < 2'h3\)", ""),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_port_is_found(tmp_path: Path, mutant: str) -> None:
    """The testbench fails where the port does something else."""
    made = rtl("deferred-log", STEP, length=8, registers=True, heads=3, rows=1)
    write_rtl(made, tmp_path)
    file = tmp_path / "deferred_log.v"
    changed, count = re.subn(*MUTANTS[mutant], file.read_text())
    assert count, mutant
    file.write_text(changed)
    assert "FAIL" in simulate(tmp_path, compile_core(tmp_path, "deferred_log", "iverilog"))


def test_tables_of_a_head_are_those_of_its_options(tmp_path: Path) -> None:
    """The command says where each head's tables lie and what they hold: those of a core of these options alone."""
    arguments = ["rtl", "deferred-log", "--set", "step=0.06", "--set", "steps=growing", "--length", "64"]
    arguments += ["--registers", "--heads", "3"]
    arguments += ["--per-head", "r=12,23.7,31.5", "--out", str(tmp_path / "core")]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts = json.loads((tmp_path / "core" / "deferred_log.json").read_text())
    tables = {table["name"]: table for table in facts["registers"]["tables"]}
    assert {name: table["entries"] for name, table in tables.items()} == {"codes": 256, "weights": 16}
    for head, r in enumerate((12, 23.7, 31.5)):
        alone = rtl("deferred-log", {**STEP, "steps": "growing", "r": r}, length=64, registers=True)
        for table in alone.core.plan.registers:
            assert tables[table.name]["initial"][head] == list(table.initial[0]), (head, table.name)
    # Tables do not overlap, and a head's begins at a multiple of what it takes.
    taken = [facts["registers"]["status"]]
    for table in tables.values():
        assert table["address"] % (table["head_stride"] * 4) == 0
        for head in range(3):
            taken += [table["address"] + head * table["head_stride"] + 4 * at for at in range(table["entries"])]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize(
    ("method", "changed", "error"),
    [
        ("deferred-log", {"heads": 2}, UsageError),
        ("deferred-log", {"heads": 0, "registers": True}, UsageError),
        ("deferred-log", {"heads": 257, "registers": True}, UsageError),
        ("deferred-log", {"heads": 2, "registers": True, "per_head": {"r": [1]}}, UsageError),
        ("deferred-log", {"heads": 2, "registers": True, "per_head": {"bits": [3, 4]}}, UsageError),
        ("deferred-log", {"heads": 2, "registers": True, "per_head": {"step": [0.1, 0.2]}}, UsageError),
        ("deferred-log", {"heads": 2, "registers": True, "per_head": {"colour": [0.1, 0.2]}}, UsageError),
        ("qlinear", {"registers": True}, RefusalError),
    ],
)
def test_refuses(method: str, changed: Mapping[str, object], error: type[SoftqError]) -> None:
    """What no port can be is one line that names it."""
    with pytest.raises(error) as raised:
        rtl(method, STEP, **changed)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", [["--heads", "2"], ["--registers", "--heads", "2", "--per-head", "r"]])
def test_the_command_refuses_in_one_line(tmp_path: Path, given: list[str]) -> None:
    """Bad arguments end with 2."""
    done = CliRunner().invoke(main, ["rtl", "deferred-log", "--set", "step=0.06", "--out", str(tmp_path), *given])
    assert done.exit_code == 2, done.output
    assert len(done.output.strip().splitlines()) == 1, done.output
