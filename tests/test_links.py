"""Files of a study's or an audit's folder are not reached through links: others may have put these there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from softq.cli import main
from tests.attention import attention, inputs

SECRET = b"what another file holds\nand half a li"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with m.onnx, d.npz and the file `secret`."""
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(), "m.onnx")
    arrays: dict[str, Any] = dict(inputs(batch=4))
    np.savez("d.npz", **arrays)
    Path("secret").write_bytes(SECRET)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


SWEEP = ("sweep", "m.onnx", "--data", "d.npz", "--metric", "max-error", "--methods", "uniform", "--out", "s", "--bits")
AUDIT = ("audit", "--runtime", "onnxruntime", "--out", "a", "--only", "axes")


def swap(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(Path("secret").resolve())
    elif kind == "dangling":
        path.symlink_to(Path("made").resolve())
    else:
        os.mkfifo(path)


def check(result: Result, file: str) -> None:
    assert result.exit_code == 2, result.output
    assert file in result.output
    assert result.output.count("\n") == 1
    assert Path("secret").read_bytes() == SECRET
    assert not Path("made").exists()


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
@pytest.mark.parametrize("file", ["outcomes.jsonl", "study.json", ".softq-lock"])
def test_a_study(here: Path, file: str, kind: str) -> None:
    assert run(*SWEEP, "3").exit_code == 0
    swap(Path("s") / file, kind)
    if (file, kind) != ("study.json", "dangling"):  # No study is there then.
        check(run(*SWEEP, "3-4"), "'s'" if file == ".softq-lock" else "s")
    if file != ".softq-lock":
        check(run("report", "s"), file)


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_reports_take_the_place_of_links(here: Path, kind: str) -> None:
    assert run(*SWEEP, "3").exit_code == 0
    for file in ("report.md", "report.csv", "report.json"):
        swap(Path("s") / file, kind)
    assert run("report", "s").exit_code == 0
    assert all(Path("s", file).is_file() and not Path("s", file).is_symlink() for file in ("report.md", "report.csv"))
    assert Path("secret").read_bytes() == SECRET
    assert not Path("made").exists()


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
@pytest.mark.parametrize("file", ["steps.jsonl", "conditions.json"])
def test_an_audit(here: Path, file: str, kind: str) -> None:
    assert run(*AUDIT).exit_code in (0, 1)
    swap(Path("a") / file, kind)
    result = run(*AUDIT)
    if (file, kind) == ("conditions.json", "dangling"):  # No audit is there then; the link is replaced.
        assert result.exit_code in (0, 1)
        assert not Path("made").exists()
    else:
        check(result, "a/steps.jsonl" if file == "steps.jsonl" else "a holds no audit")


def test_faults_of_an_audit_go_through_no_link(here: Path) -> None:
    Path("wrong.py").write_text("def softmax(scores, axis): return scores\n")
    audit = ("audit", "--runtime", "wrong.py:softmax", "--out", "a", "--only", "axes", "--longest", "9")
    Path("elsewhere").mkdir()
    Path("a").mkdir()
    Path("a/faults").symlink_to(here / "elsewhere")
    check(run(*audit), "a/faults")
    assert not list(Path("elsewhere").iterdir())
