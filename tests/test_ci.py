"""The GitHub Action and the hooks of pre-commit: their scripts, run as a runner and as pre-commit would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

import softq
from tests.attention import attention

ROOT = Path(__file__).resolve().parent.parent
VIT = ROOT / "models" / "mnist_vit"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a model, a good and a bad candidate, data, a model that is refused, and a `softq` in bin."""
    shutil.copy(VIT / "mnist_vit.onnx", tmp_path / "model.onnx")
    softq.save(softq.convert(VIT / "mnist_vit.onnx"), tmp_path / "good.onnx")
    softq.save(
        softq.convert(VIT / "mnist_vit.onnx", method="uniform", settings={"top": 0.01}, bits=2), tmp_path / "bad.onnx"
    )
    onnx.save(attention(dtype="double"), tmp_path / "refused one.onnx")
    with np.load(VIT / "data.npz") as arrays:
        np.savez(tmp_path / "data.npz", **{name: arrays[name][:64] for name in arrays.files})  # pyright: ignore
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "softq").write_text(f'#!/bin/sh\nexec {sys.executable} -m softq "$@"\n')
    (tmp_path / "bin" / "softq").chmod(0o755)
    return tmp_path


def environment(here: Path) -> dict[str, str]:
    path = os.pathsep.join([str(here / "bin"), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(here)}


def act(here: Path, **given: str) -> tuple[int, str, str, dict[str, str]]:
    """Run the action's steps; return the exit code, what it printed, the summary and the outputs."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    given = {name.replace("_", "-"): value for name, value in given.items()} | {"install": ""}
    assert set(given) <= set(inputs)
    inputs |= given
    summary, output = here / "summary.md", here / "output"
    summary.write_text("")
    output.write_text("")
    code, printed = 0, ""
    for step in action["runs"]["steps"]:
        if (condition := step.get("if")) is not None:
            found = re.fullmatch(r"inputs\.([\w-]+) != ''", condition)
            assert found is not None, condition
            if inputs[found[1]] == "":
                continue
        assert "${{" not in step["run"], "an input in a script is an injection"
        env = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], text)
            for name, text in step["env"].items()
        }
        assert not any("${{" in text for text in env.values())
        env |= environment(here) | {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(output)}
        # How a runner calls it for `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True)
        code, printed = done.returncode, printed + done.stdout + done.stderr
        if code:
            break
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return code, printed, summary.read_text(), outputs


def test_the_action_checks(here: Path) -> None:
    given = {"reference": "model.onnx", "data": "data.npz", "metric": "top1-accuracy", "max_drop": "10%"}
    code, printed, summary, outputs = act(here, candidate="good.onnx", **given)
    assert code == 0, printed
    assert outputs["passed"] == "true"
    assert "| top1-accuracy |" in summary
    (note,) = re.findall(r"^::notice title=softq check::(.*)$", printed, re.MULTILINE)
    assert note.startswith("passed: top1-accuracy goes from 0.984375 to")
    assert "95 %25 confidence" in note, "a percent sign is an escape in annotations"
    code, printed, summary, outputs = act(here, candidate="bad.onnx", arguments="--labels digit --batch '16'", **given)
    assert code == 1, printed
    assert outputs["passed"] == "false"
    assert "16 at a time" in summary
    assert Path(outputs["report"]).read_text() == summary
    assert re.search(r"^::error title=softq check::FAILED: ", printed, re.MULTILINE)
    code, printed, summary, outputs = act(here, candidate="none.onnx", **given)
    assert (code, outputs["passed"]) == (2, "false")
    assert "::error title=softq check::softq: none.onnx: no such file" in printed
    assert "none.onnx: no such file" in summary


def test_the_action_inspects(here: Path) -> None:
    code, printed, summary, outputs = act(here, command="inspect", models="model.onnx\ngood.onnx")
    assert (code, outputs["passed"]) == (0, "true"), printed
    assert "4 softmaxes: 4 to convert" in summary
    code, printed, _, _ = act(here, command="inspect", models="model.onnx good.onnx", fail_on="none")
    assert code == 1
    assert "::error title=softq inspect::softq: good.onnx has no softmax that is to be converted" in printed
    shutil.copy(here / "refused one.onnx", here / "refused.onnx")
    code, printed, _, _ = act(here, command="inspect", models="model.onnx refused.onnx")
    assert code == 1
    assert "::error title=softq inspect::softq: refused.onnx has a softmax that is refused" in printed


def test_what_stands_in_an_input_is_no_script(here: Path) -> None:
    code, _, _, _ = act(here, command="inspect", models="$(touch owned) `touch owned` model.onnx;touch owned")
    assert code == 2
    assert not (here / "owned").exists()
    code, printed, _, _ = act(here, command="build")
    assert code == 2
    assert "::error title=softq::command is 'build'; it must be check or inspect" in printed


def test_the_hooks(here: Path) -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
    (here / "softq.toml").write_text("[convert]\nbits = 3\n")
    (here / "wrong.toml").write_text("[convert]\nbit = 3\n")

    def run(name: str, *arguments: str) -> tuple[int, str]:
        hook = hooks[name]
        names = sorted(path.name for path in here.iterdir() if re.search(hook["files"], path.name))
        assert names
        files = names if hook.get("pass_filenames", True) else []
        command = [*shlex.split(hook["entry"]), *arguments, *files]
        done = subprocess.run(command, cwd=here, env=environment(here), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, printed = run("softq-inspect")
    assert code == 1
    assert "softq: refused one.onnx has a softmax that is refused" in printed
    (here / "refused one.onnx").unlink()
    assert run("softq-inspect")[0] == 0
    check = ["model.onnx", "good.onnx", "--data", "data.npz", "--max-drop", "10%"]
    assert run("softq-check", *check)[0] == 0
    check[1] = "bad.onnx"
    assert run("softq-check", *check)[0] == 1
    assert run("softq-config") == (0, "softq convert --config softq.toml\n")
    (here / "wrong.toml").rename(here / "softq.toml")
    assert run("softq-config")[0] == 2
