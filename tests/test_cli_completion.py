"""Completion as a shell asks for it: bash runs the script, and the words that it offers are those that there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from softq.cli import completing, main
from softq.cli.commands.completion import SHELLS
from softq.methods import METHODS
from softq.metrics import METRICS
from softq.packages import PACKAGES
from softq.targets import TARGETS

MODELS = Path(__file__).resolve().parent.parent / "models"
VIT = str(MODELS / "mnist_vit" / "mnist_vit.onnx")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the command softq in the path, and the script of bash."""
    command = tmp_path / "softq"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m softq "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SOFTQ_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "script").write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    return tmp_path


def complete(shell: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("softq", *words))
    script = f'. "{shell}/script"; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _softq_completion softq'
    script += '; printf "%s\\n" "${COMPREPLY[@]}"'
    # compopt, by which files are asked for, works in an interactive completion alone.
    done = subprocess.run(
        ["bash", "--norc", "-c", f'compopt() {{ echo "<$*>"; }}; {script}'],
        cwd=shell, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(shell: Path) -> None:
    assert complete(shell, "con") == ["config", "convert"]
    assert "--calibration-rows" in complete(shell, "convert", "m", "o", "--cal")
    assert complete(shell, "convert", "m", "o", "--method", "deferred-log") == [
        "deferred-log", "deferred-log-octaves", "deferred-log-online"
    ]  # fmt: skip
    assert complete(shell, "sweep", "m", "--methods", "exact,unif") == ["exact,uniform"]
    assert complete(shell, "check", "a", "b", "--metric", "top1") == ["top1-accuracy", "top1-agreement"]
    assert complete(shell, "build", "m", "o", "--target", "cort") == ["cortex-m"]
    assert complete(shell, "explain", VIT, "softmax_") == ["softmax_1", "softmax_2", "softmax_3"]
    assert complete(shell, "convert", VIT, "o", "--sites", "softmax_3") == ["softmax_3"]
    assert complete(shell, "inspect", "mod") == ["<-o", "default>"]


def test_names_are_those_of_the_registry() -> None:
    assert completing.names("softq.methods", "METHOD") == list(METHODS.entries())
    assert completing.names("softq.metrics", "METRIC") == list(METRICS.entries())
    assert completing.names("softq.targets", "TARGET") == list(TARGETS.entries())
    assert completing.names("softq.packages", "PACKAGE") == list(PACKAGES.entries())


@pytest.mark.parametrize("words", ["softq ", "softq convert m o --method d", "softq check a b --metric t"])
def test_completing_imports_nothing_heavy(words: str) -> None:
    code = """
import atexit, sys
heavy = ("numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "softq.methods", "softq.metrics")
atexit.register(lambda: print(*[m for m in heavy if m in sys.modules], file=sys.stderr))
from softq.cli import main
main(prog_name="softq")
"""
    given = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_SOFTQ_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("plain,")
    assert done.stderr.split() == []


def test_sites_are_found_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOFTQ_CACHE_DIR", str(tmp_path / "cache"))
    copy = tmp_path / "model.onnx"
    copy.write_bytes(Path(VIT).read_bytes())
    assert completing.find_sites(str(copy)) == ["softmax", "softmax_1", "softmax_2", "softmax_3"]
    with monkeypatch.context() as inner:
        inner.setattr("softq.conversion.inspect", lambda model: pytest.fail("looked again"))
        assert len(completing.find_sites(str(copy))) == 4
    copy.write_bytes(b"no model")
    assert completing.find_sites(str(copy)) == []


@pytest.mark.parametrize("shell_name", SHELLS)
def test_each_shell_has_a_script(shell_name: str) -> None:
    told = CliRunner().invoke(main, ["completion", shell_name]).stdout
    assert f"_SOFTQ_COMPLETE={shell_name}_complete" in told
