"""Cores in Verilog give what the interpreter gives, at full speed and where both sides make them wait."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from softq.errors import RefusalError, SoftqError, UsageError
from softq.rtl import rtl, write_rtl
from softq.rtl.beats import beats
from softq.vectors.rows import choose
from tests.rtl_rows import REFUSED, STALLS, Configuration, configurations, settings_of, simulate_rows
from tests.simulators import check, compile_core, simulate

WINDOWS = 0.25
"""A step with which the sum of deferred-log-octaves is a scan, too."""


@pytest.mark.parametrize(
    ("method", "lanes", "length", "step"),
    [
        ("deferred-log", 1, 200, 0.06),
        ("deferred-log", 4, 200, 0.06),
        ("ita", 2, 200, 0.06),
        ("deferred-log-octaves", 1, 200, 0.06),
        ("deferred-log-octaves", 1, 200, WINDOWS),
        pytest.param("edge-moe", 1, 50, 0.06, marks=pytest.mark.slow),
    ],
)
def test_gives_what_the_interpreter_gives(tmp_path: Path, method: str, lanes: int, length: int, step: float) -> None:
    """Values of each element and of each row, in both simulators' common language."""
    check(tmp_path, rtl(method, {"step": step}, length=length, lanes=lanes, rows=2), "iverilog", STALLS[:2])


@pytest.mark.parametrize(
    ("method", "output", "lanes", "masked"),
    [("ita", "uint8", 2, True), pytest.param("tflite-int8", "int8", 1, False, marks=pytest.mark.slow)],
)
def test_gives_probabilities_as_published(tmp_path: Path, method: str, output: str, lanes: int, masked: bool) -> None:
    """Three passes, with numbers of a row that are computed bit by bit between two."""
    settings = {**settings_of(method), "output": output}
    check(tmp_path, rtl(method, settings, length=61, lanes=lanes, masked=masked, rows=2), "iverilog", STALLS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_gives_what_the_interpreter_gives_of_every_method(tmp_path: Path, configuration: Configuration) -> None:
    """All pairs of a maximum and a score, all lengths, masks, and stalls on both sides."""
    done = simulate_rows(configuration, tmp_path)
    assert done.rows >= 10_000
    assert done.wrong == 0, done


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scores", ["i8", "u8"])
@pytest.mark.parametrize("method", REFUSED)
def test_refuses_methods_that_are_no_core(method: str, scores: str, masked: bool) -> None:
    """Programs with floats."""
    with pytest.raises(RefusalError, match=REFUSED[method]):
        rtl(method, settings_of(method), scores=scores, masked=masked)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [("codes", "normalizer"), ("octaves",), ("weights", "normalizer")])
@pytest.mark.parametrize("masked", [False, True])
def test_gives_what_the_interpreter_gives_where_a_sum_has_windows(
    tmp_path: Path, masked: bool, outputs: tuple[str, ...]
) -> None:
    """The sum of deferred-log-octaves where the reference may rise by more than 31 octaves."""
    settings = {"step": WINDOWS}
    made = rtl("deferred-log-octaves", settings, masked=masked, outputs=outputs, rows=20)
    check(tmp_path, made, "verilator", STALLS)


CLOCKS = (
    ("deferred-log", 1, 197), ("ita", 2, 64), ("index-softmax", 4, 33), ("relu", 1, 5), ("deferred-log-octaves", 1, 40),
    ("edge-moe", 1, 33),
)  # fmt: skip


@pytest.mark.parametrize(("method", "lanes", "length"), CLOCKS)
def test_says_how_many_clocks_a_row_takes(tmp_path: Path, method: str, lanes: int, length: int) -> None:
    """The stated latency is that of the simulation, of a row of one element and of the longest."""
    made = rtl(method, settings_of(method), lanes=lanes, length=length, rows=1)
    for each in (1, length):
        folder = tmp_path / str(each)
        plan = made.core.plan
        write_rtl(replace(made, beats=beats(plan, choose(plan.source, {}, [each], 1, 0)[-1:])), folder)
        said = simulate(folder, compile_core(folder, made.core.name, "iverilog"))
        assert said.endswith(f" {made.core.latency(each)} clocks"), (each, said)


def test_a_loop_takes_one_clock_or_as_many_as_it_says() -> None:
    """The loops of deferred-log-octaves close in one clock; edge-moe's has products in it."""
    for step in (0.06, WINDOWS, 1.0):
        assert rtl("deferred-log-octaves", {"step": step}, rows=0).core.describe()["element_interval"] == 1
    core = rtl("edge-moe", {"step": 0.06}, length=64, rows=0).core
    interval = core.describe()["element_interval"]
    assert isinstance(interval, int)
    assert interval > 1
    assert core.latency(64) - core.latency(63) == interval + 1
    first = rtl("edge-moe", {"step": 0.06, "maximum": "first"}, length=64, rows=0).core
    assert first.describe()["element_interval"] == 1


def test_a_wrong_table_is_found(tmp_path: Path) -> None:
    """The testbench fails where one entry of a table is another."""
    made = rtl("deferred-log", settings_of("deferred-log"), length=64, rows=2)
    write_rtl(made, tmp_path)
    file = tmp_path / "deferred_log.v"
    text = file.read_text()
    changed = re.sub(r"(8'h1e: table_\d+ = 4'h)(\w)", lambda m: f"{m[1]}{int(m[2], 16) ^ 1:x}", text)
    assert changed != text
    file.write_text(changed)
    assert "FAIL" in simulate(tmp_path, compile_core(tmp_path, "deferred_log", "iverilog"))


@pytest.mark.parametrize("command", ["rtl", "hls"])
def test_a_folder_with_other_things_is_left_alone(tmp_path: Path, command: str) -> None:
    """The rule of `softq build`; kernels may lie side by side and are replaced, and simulations beside them stay."""
    other, own = tmp_path / "other", tmp_path / "own"

    def run(method: str, folder: Path) -> Result:
        settings = ["--set", "step=0.06", "--length", "8", "--out", str(folder)]
        return CliRunner().invoke(main, [command, method, *settings])

    other.mkdir()
    (other / "notes.json").write_text("{}")
    done = run("relu", other)
    told = f"softq: output '{other}' is a folder with other things ('notes.json'); give a new or an empty one\n"
    assert (done.exit_code, done.stderr) == (2, told)
    assert [path.name for path in other.iterdir()] == ["notes.json"]

    for method in ("deferred-log", "relu"):
        assert run(method, own).exit_code == 0
    before = {path: path.read_bytes() for path in own.iterdir()}
    simulation = own / "simulation"
    simulation.write_text("made by Icarus Verilog")
    before[simulation] = simulation.read_bytes()
    done = run("deferred-log", own)
    assert done.exit_code == 0, done.output
    assert {path: path.read_bytes() for path in own.iterdir()} == before


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two runs of the command write the same files, and the description names what the module has."""
    for name in ("a", "b"):
        arguments = ["rtl", "ita", "--set", "step=0.06", "--length", "64", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    facts = json.loads((tmp_path / "a" / "ita.json").read_text())
    text = (tmp_path / "a" / "ita.v").read_text()
    for port in facts["ports"]:
        assert re.search(rf"(input|output) wire (\[{port['width'] - 1}:0\] )?{port['name']}\b", text), port


@pytest.mark.parametrize(
    ("method", "changed", "error"),
    [
        ("qlinear", {}, RefusalError),
        ("deferred-log", {"scores": "f32"}, UsageError),
        ("deferred-log", {"lanes": 3}, UsageError),
        ("deferred-log", {"length": 0}, UsageError),
        ("deferred-log", {"outputs": ("weights", "codes")}, RefusalError),
        ("deferred-log", {"outputs": ("colours",)}, UsageError),
        ("deferred-log", {"name": "Core"}, UsageError),
        ("deferred-log-octaves", {"lanes": 2}, RefusalError),
    ],
)
def test_refuses(method: str, changed: Mapping[str, object], error: type[SoftqError]) -> None:
    """What a core cannot be is one line that names it."""
    with pytest.raises(error) as raised:
        rtl(method, settings_of(method), **changed)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(raised.value)
