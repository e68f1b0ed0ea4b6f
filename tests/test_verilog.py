"""Cores in Verilog give what the interpreter gives, at full speed and where both sides make them wait."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from softq.cli import main
from softq.errors import RefusalError, SoftqError, UsageError
from softq.methods import METHODS
from softq.rtl import MadeCore, rtl, write_rtl
from tests.simulators import check, compile_core, simulate

STALLS = ((100, 100), (70, 60), (30, 100), (100, 20))


def _settings(method: str, **more: object) -> Mapping[str, object]:
    return {"step": 0.06, **more} if "step" in METHODS.get(method).options.specs() else more


INTEGER = [
    name for name, method in METHODS.entries().items() if method.drop_in and method.integer_scores
]  # fmt: skip

_SCANS = dict.fromkeys(("deferred-log-octaves", "edge-moe"), "has no form in a core")
REFUSED = {"qlinear": "is a float", **_SCANS}


@pytest.mark.parametrize(("method", "lanes"), [("deferred-log", 1), ("deferred-log", 4), ("ita", 2)])
def test_gives_what_the_interpreter_gives(tmp_path: Path, method: str, lanes: int) -> None:
    """Values of each element and of each row, in both simulators' common language."""
    check(tmp_path, rtl(method, _settings(method), length=200, lanes=lanes, rows=2), "iverilog", STALLS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scores", ["i8", "u8"])
@pytest.mark.parametrize("method", INTEGER)
def test_gives_what_the_interpreter_gives_of_every_method(
    tmp_path: Path, method: str, scores: str, masked: bool
) -> None:
    """Each method that can stand for softmax and takes integers, unless its program has floats or a scan."""
    if method in REFUSED:
        with pytest.raises(RefusalError, match=REFUSED[method]):
            rtl(method, _settings(method), scores=scores, masked=masked)
        return
    made = rtl(method, _settings(method), scores=scores, masked=masked, rows=20)
    check(tmp_path, made, "verilator", STALLS)


def test_says_how_many_clocks_a_row_takes(tmp_path: Path) -> None:
    """The stated latency is that of the simulation, of one row and of two lengths."""
    for method, lanes, length in (("deferred-log", 1, 197), ("ita", 2, 64), ("index-softmax", 4, 33), ("relu", 1, 5)):
        made = rtl(method, _settings(method), lanes=lanes, length=length, rows=1)
        one = _first_row(made)
        folder = tmp_path / method
        write_rtl(one, folder)
        said = simulate(folder, compile_core(folder, made.core.name, "iverilog"))
        assert said.endswith(f" {made.core.latency(1)} clocks"), (method, said)


def _first_row(made: MadeCore) -> MadeCore:
    """Return the same core with one row, of one element."""
    beats = type(made.beats)(made.beats.scores[:1], made.beats.results[:1], made.beats.numbers[:1])
    return MadeCore(made.core, beats, made.facts)


def test_a_wrong_table_is_found(tmp_path: Path) -> None:
    """The testbench fails where one entry of a table is another."""
    made = rtl("deferred-log", _settings("deferred-log"), length=64, rows=2)
    write_rtl(made, tmp_path)
    file = tmp_path / "deferred_log.v"
    text = file.read_text()
    changed = re.sub(r"(8'h1e: table_\d+ = 4'h)(\w)", lambda m: f"{m[1]}{int(m[2], 16) ^ 1:x}", text)
    assert changed != text
    file.write_text(changed)
    assert "FAIL" in simulate(tmp_path, compile_core(tmp_path, "deferred_log", "iverilog"))


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
        ("edge-moe", {}, RefusalError),
    ],
)
def test_refuses(method: str, changed: Mapping[str, object], error: type[SoftqError]) -> None:
    """What a core cannot be is one line that names it."""
    with pytest.raises(error) as raised:
        rtl(method, _settings(method), **changed)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(raised.value)
