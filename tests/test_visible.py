"""Names out of files of strangers, on a terminal: shown, and never obeyed."""

from __future__ import annotations

import csv
import importlib.util
import json
import logging
import re
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import softq as softq_package
from softq.cli import main
from softq.metrics import NanCounts
from softq.reports import MetricResult, Report, to_text
from softq.visible import visible
from tests.attention import attention, inputs
from tests.handmade import needs_host

# A window's title, a faked row by all kinds of ends of lines, colours (C1, rich's own), text that is turned round.
HOSTILE = "\x1b]0;t\x07\r\nFAKE\x85FAKE\u2028FAKE\x9b31m\x7f\u202e\u2066[red]\U000e0041"


def hostile(name: str) -> str:
    return f"{name}{HOSTILE}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a hostile name with model.onnx and data.npz, all of whose names are hostile, as the current one."""
    folder = tmp_path / hostile("folder")
    folder.mkdir()
    monkeypatch.chdir(folder)
    model = attention()
    for value in (*model.graph.input, *model.graph.output):
        value.name = hostile(value.name)
        value.type.tensor_type.shape.dim[0].dim_param = hostile("batch")
    for node in model.graph.node:
        node.name = hostile(node.output[0])
        for names in (node.input, node.output):
            names[:] = [hostile(name) for name in names]
    for name in ("model", "candidate"):
        onnx.save(model, hostile(name))
    np.savez(hostile("data.npz") + ".npz", allow_pickle=False, **{hostile(k): v for k, v in inputs(batch=8).items()})
    return folder


def softq(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    for line in (result.stdout + result.stderr).split("\n"):
        assert line.isprintable(), (arguments, line)
        assert "--debug" in arguments or not line.strip().startswith("FAKE"), (arguments, line)
    return result


MODEL = hostile("model")
DATA = ("--data", hostile("data.npz") + ".npz")


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ("inspect", MODEL)),
        (0, ("inspect", MODEL, "--json")),
        (0, ("explain", MODEL, hostile("raw"))),
        (2, ("explain", MODEL, hostile("other"))),
        (2, ("--debug", "explain", MODEL, hostile("other"))),
        (0, ("convert", MODEL, hostile("out"), "--save-plan", hostile("plan"))),
        (0, ("convert", MODEL, hostile("out"), "--json")),
        (2, ("convert", MODEL, hostile("out"), "--method", hostile("method"))),
        (2, ("convert", MODEL, hostile("out"), "--set", hostile("key") + "=1")),
        (2, ("convert", MODEL, hostile("out"), "--sites", hostile("site"))),
        (0, ("check", MODEL, hostile("candidate"), *DATA, "--metric", "cosine", "--markdown", hostile("m"))),
        (0, ("check", MODEL, hostile("candidate"), *DATA, "--metric", "cosine", "--json")),
        (2, ("check", MODEL, hostile("candidate"), *DATA, "--output", hostile("absent"))),
        (2, ("methods", hostile("method"))),
        (2, (hostile("command"),)),
        (2, ("inspect", "--" + hostile("option"))),
    ],
    ids=lambda value: value[0][:8] if isinstance(value, tuple) else None,
)
def test_names_are_shown(here: Path, code: int, arguments: tuple[str, ...]) -> None:
    result = softq(*arguments)
    assert result.exit_code == code, result.output
    assert "]0;t" in result.stdout + result.stderr
    if "--json" in arguments:
        assert json.loads(result.stdout)
        assert json.dumps(HOSTILE)[1:-1] in result.stdout
    if "--markdown" in arguments:
        assert all(line.isprintable() for line in Path(hostile("m")).read_text("utf-8").split("\n"))


OTHERS = {
    "audit": ("audit", "--runtime", hostile("runtime"), "--out", hostile("audit")),
    "completion": ("completion", hostile("shell")),
    "config": ("config", hostile("softq.toml")),
    "data": ("data", MODEL, hostile("images"), "--out", hostile("data")),
    "hls": ("hls", "deferred-log", "--set", "step=0.06", "--name", hostile("name"), "--out", hostile("core")),
    "limits": ("limits", hostile("limit")),
    "metrics": ("metrics", hostile("metric")),
    "packages": ("packages", hostile("package")),
    "profiles": ("profiles", hostile("profile")),
    "quickstart": ("quickstart", MODEL, hostile("quickstart")),
    "rtl": ("rtl", "deferred-log", "--set", "step=0.06", "--name", hostile("name"), "--out", hostile("core")),
    "size": ("size", hostile("built")),
    "targets": ("targets", hostile("target")),
    "vectors": ("vectors", hostile("method"), hostile("vectors")),
}
"""Of each command that the other tests leave out, one that has hostile names to tell of."""
TRIED = {"build", "check", "convert", "explain", "inspect", "methods", "plan", "report", "run", "sensitivity", "sweep"}


def test_every_command_is_tried() -> None:
    assert isinstance(main, click.Group)
    assert {*OTHERS, *TRIED} == set(main.list_commands(click.Context(main)))


@pytest.mark.parametrize("command", OTHERS)
def test_names_are_shown_by_the_others(here: Path, command: str) -> None:
    Path(hostile("softq.toml")).write_text(f"[convert]\nplan = {json.dumps([HOSTILE])}\n")
    result = softq(*OTHERS[command])
    assert "]0;t" in result.stdout + result.stderr


def test_names_are_shown_by_what_measures(here: Path) -> None:
    settings = (*DATA, "--metric", "cosine", "--methods", "uniform", "--bits", "8")
    for arguments in (
        ("sweep", MODEL, *settings, "--out", hostile("sweep"), "--max-drop", "0"),
        ("sensitivity", MODEL, *settings, "--out", hostile("alone")),
        ("plan", MODEL, *settings, "--out", hostile("plan"), "--max-drop", "0.5"),
        ("report", hostile("sweep"), "--json"),
        ("report", hostile("sweep")),
    ):
        assert "]0;t" in softq(*arguments).output
        check_reports(Path(hostile("sweep")))


def check_reports(folder: Path) -> None:
    for name in ("report.md", "report.csv"):
        for line in (folder / name).read_text("utf-8").split("\n"):
            assert line.isprintable(), (name, line)
            assert not line.strip().startswith("FAKE"), (name, line)
    page = (folder / "report.html").read_text("utf-8")
    assert not [c for c in HOSTILE if not c.isprintable() and c not in "\r\n" and c in page]


def spoil(value: object) -> object:
    """Return values of JSON whose texts are all hostile, and begin as a formula; the keys of records stay."""
    if isinstance(value, str):
        return f"=1+{hostile(value)}"
    if isinstance(value, list):
        return [spoil(one) for one in value]
    return {key: spoil(one) for key, one in value.items()} if isinstance(value, dict) else value


def test_records_of_a_study_are_shown(here: Path) -> None:
    settings = (*DATA, "--metric", "cosine", "--methods", "uniform", "--bits", "8")
    assert softq("sweep", MODEL, *settings, "--out", "s").exit_code == 0
    study, outcome = (json.loads(Path("s", name).read_text()) for name in ("study.json", "outcomes.jsonl"))
    spoiled = {
        key: spoil(value) if key not in ("direction", "reference", "command") else value for key, value in study.items()
    }
    Path("s/study.json").write_text(json.dumps(spoiled))
    cost = {"amounts": {f"=1+{HOSTILE}": {"value": 1.0, "unit": HOSTILE}}, "refused": HOSTILE}
    sites = {f"=1+{hostile(name)}": errors for name, errors in outcome["sites"].items()}
    for setting in ({"method": f"=1+{HOSTILE}", "options": {f"=1+{HOSTILE}": HOSTILE}}, {"site": HOSTILE}):
        spoiled = {**outcome, "setting": outcome["setting"] | setting, "sites": sites, "cost": cost}
        Path("s/outcomes.jsonl").write_text(json.dumps(spoiled) + "\n")
        result = softq("report", "s", "--max-drop", "0.5")
        assert result.exit_code == 0, result.output
        check_reports(Path("s"))
        with Path("s/report.csv").open(encoding="utf-8", newline="") as file:
            cells = [cell for line in csv.reader(file) for cell in line]
        assert any("FAKE" in cell for cell in cells)
        assert not [cell for cell in cells if cell.startswith("=")]


@needs_host
@pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="builds need TVM")
def test_names_are_shown_of_what_is_built(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = softq("build", MODEL, hostile("built"), "--target", "cpu")
    assert result.exit_code == 0, result.output
    assert "]0;t" in result.stdout
    for arguments, code in ((("--reference", MODEL, "--metric", "cosine"), 0), (("--output", hostile("absent")), 2)):
        result = softq("run", hostile("built"), *DATA, *arguments)
        assert result.exit_code == code, result.output
        assert "]0;t" in result.output
    # Nothing past Python, by compilers, either.
    assert capfd.readouterr() == ("", "")


def test_warnings_of_libraries_are_one_line(here: Path) -> None:
    softq("targets")
    assert logging.lastResort is not None
    record = logging.LogRecord("onnx_ir", logging.WARNING, "", 0, "Input '%s' of node", (HOSTILE,), None)
    assert logging.lastResort.format(record).isprintable()


def test_colours_of_a_terminal_are_the_only_escapes() -> None:
    shown = MetricResult("[red]cosine\x1b]0;t\x07\nFAKE", "", "higher", None, 1.0, None, NanCounts(0, 0, 0, 0))
    compared = Report("model\x1b]0;t\x07", "", "", "", None, 1, 1, (shown,), None, {})
    text = to_text(compared, terminal=True, width=200)
    assert r"[red]cosine\u001b]0;t\u0007\nFAKE" in text
    assert re.sub(r"\x1b\[[\d;]*m|\n", "", text).isprintable()


def test_text_that_is_printable_stays() -> None:
    for text in ("", "a b", "Größe 数 ~", r"\u001b"):
        assert visible(text) is text
    assert visible("\x00\x1b\x9b\x7f\ud800\u200b\U000e0041") == r"\u0000\u001b\u009b\u007f\ud800\u200b\udb40\udc41"
    assert json.loads(f'"{visible(HOSTILE)}"') == HOSTILE


def test_nothing_else_prints() -> None:
    """Commands print through `softq.cli.printing`, and the library prints nothing."""
    allowed = {"printing.py", "group.py"}
    assert softq_package.__file__ is not None
    for path in Path(softq_package.__file__).parent.rglob("*.py"):
        if re.search(r"(?<![\w.])(print|click\.s?echo)\(", path.read_text("utf-8")):
            assert path.parent.name == "cli", path
            assert path.name in allowed, path
