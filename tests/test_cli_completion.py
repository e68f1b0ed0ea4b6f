"""Completion as a shell asks for it: bash runs the script, and the words that it offers are those that there are."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

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


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes(shell: Path) -> None:
    (shell / "softq.fish").write_text(CliRunner().invoke(main, ["completion", "fish"]).stdout)
    (shell / "mine.onnx").touch()

    def offered(line: str) -> list[str]:
        script = f"source {shell}/softq.fish; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script], cwd=shell, capture_output=True, text=True, check=True
        )
        return [word.split("\t")[0] for word in done.stdout.splitlines()]

    assert offered("softq con") == ["config", "convert"]
    assert "--calibration-rows" in offered("softq convert m o --cal")
    assert offered("softq convert m o --method deferred-log-o") == ["deferred-log-octaves", "deferred-log-online"]
    assert offered("softq sweep m --methods exact,unif") == ["exact,uniform"]
    assert offered(f"softq explain {VIT} softmax_") == ["softmax_1", "softmax_2", "softmax_3"]
    assert offered("softq inspect min") == ["mine.onnx"]


HOSTILE = (
    "x$(touch${IFS}RAN)",
    "x`touch RAN`",
    "x;touch RAN;#",
    "x'y\"z",
    "x*",
    "x\\y",
    "x {a,b}~!1",
    "x|a&b>c",
    "x=a:b",
)


def write_hostile(folder: Path, names: tuple[str, ...] = HOSTILE) -> Path:
    """Write a model whose softmaxes have names that mean something to a shell, and three that no terminal shows."""
    shown = [*names, "x\x1b]0;t\x07", "x\ny", "x\u202ey"]
    nodes = [helper.make_node("Softmax", ["x"], [name]) for name in shown]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", *shown)]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "h.onnx")
    return folder / "h.onnx"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_gets_names_that_mean_themselves(shell: Path) -> None:
    model = write_hostile(shell)
    script = f'. "{shell}/script"; COMP_WORDS=(softq explain {model} x); COMP_CWORD=3; _softq_completion softq'
    script += '; for word in "${COMPREPLY[@]}"; do eval "printf \'%s\\n\' $word"; done'
    (shell / "xfile").touch()
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=shell, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.splitlines() == list(HOSTILE)
    assert done.stderr == ""
    assert not (shell / "RAN").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_gets_names_that_mean_themselves(shell: Path) -> None:
    (shell / "softq.fish").write_text(CliRunner().invoke(main, ["completion", "fish"]).stdout)
    model = write_hostile(shell)
    asked = f"complete -C 'softq explain {model} x' --escape"
    script = f"source {shell}/softq.fish; for word in ({asked}); eval echo $word; end"
    done = subprocess.run(["fish", "--no-config", "-c", script], cwd=shell, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == sorted(HOSTILE)
    assert not (shell / "RAN").exists()


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_completes(shell: Path) -> None:
    """A line is typed on a terminal, with tabs; a key writes what stands in it then."""
    (shell / "softq.zsh").write_text(CliRunner().invoke(main, ["completion", "zsh"]).stdout)
    (shell / "mine.onnx").touch()
    (shell / "setup.zsh").write_text(
        "autoload -Uz compinit && compinit -u -D\n"
        f"source {shell}/softq.zsh\n"
        f"tell() {{ print -r -- $BUFFER >> {shell}/typed; BUFFER= }}\n"
        "zle -N tell; bindkey '^T' tell\n"
        f"touch {shell}/ready\n"
    )

    def typed(line: str) -> str:
        lines = len((shell / "typed").read_text().splitlines()) if (shell / "typed").exists() else 0
        os.write(terminal, f"{line}\x14".encode())
        return wait_for(lambda: (shell / "typed").exists() and (shell / "typed").read_text().splitlines()[lines:])[0]

    def wait_for(found: Callable[[], Any]) -> Any:
        end = time.monotonic() + 60
        while not (value := found()):
            assert time.monotonic() < end, "nothing came"
            if select.select([terminal], [], [], 0.05)[0]:
                os.read(terminal, 65536)
        return value

    child, terminal = pty.fork()
    if child == 0:
        os.chdir(shell)
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        os.write(terminal, f"source {shell}/setup.zsh\n".encode())
        wait_for((shell / "ready").exists)
        assert typed("softq conve\t") == "softq convert "
        assert typed("softq convert m o --calibration-ro\t") == "softq convert m o --calibration-rows "
        assert (
            typed("softq convert m o --method deferred-log-oc\t") == "softq convert m o --method deferred-log-octaves "
        )
        assert typed("softq sweep m --methods exact,unif\t").rstrip() == "softq sweep m --methods exact,uniform"
        assert typed(f"softq explain {VIT} softmax_\t") == f"softq explain {VIT} softmax_"
        assert typed(f"softq convert {VIT} o --sites softmax_3\t").rstrip().endswith("--sites softmax_3")
        assert typed("softq inspect min\t") == "softq inspect mine.onnx "
        for name in (HOSTILE[0], HOSTILE[3]):
            model = write_hostile(shell, (name,))
            assert shlex.split(typed(f"softq explain {model} x\t"))[-1] == name
        assert not (shell / "RAN").exists()
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


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
