"""The examples run as their docstrings say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_microcontroller(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    for program in ("make", "arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    given = [f"PYTHON={sys.executable}", f"SOFTQ={sys.executable} -m softq", f"BUILD={tmp_path}"]
    with np.load(EXAMPLES.parent / "models" / "mnist_vit" / "data.npz") as data:
        labels = data["label.digit"]
    for image in (3, 5):
        done = subprocess.run(
            ["make", "--no-print-directory", "-C", EXAMPLES / "microcontroller", "run", f"IMAGE={image}", *given],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert f"digit {labels[image]}, label {labels[image]}" in (done.stdout + done.stderr).splitlines()
        assert "warning" not in done.stderr
    flags = json.loads((tmp_path / "digits" / "manifest.json").read_text())["compiler_flags"]
    assert f"CPU := {' '.join(flags)}" in (EXAMPLES / "microcontroller" / "Makefile").read_text().splitlines()


@pytest.mark.slow
def test_export_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "block.onnx"
    subprocess.run([sys.executable, EXAMPLES / "export_pipeline.py", out], check=True, capture_output=True)
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert [function.domain for function in model.functions] == ["softq"]
    assert "Softmax" not in [node.op_type for node in model.graph.node]


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "demo.py", tmp_path], check=True, capture_output=True, text=True)
    commands = [line for line in done.stdout.splitlines() if line.startswith("$ softq ")]
    assert [line.split()[2] for line in commands] == ["inspect", *["convert", "check"] * 5, "build", "run"]
    times = [line for line in done.stdout.splitlines() if line.startswith("[") and line.endswith(" s]")]
    assert len(times) == len(commands)
    report = (tmp_path / "deferred-log-3.md").read_text()
    (accuracy,) = re.findall(r"\| top1-accuracy \| [\d.]+ \| ([\d.]+) \|", report)
    assert f", {accuracy} at 3 bits" in done.stdout
    for kind in ("onnx", "plan.json"):
        assert (tmp_path / f"deferred-log-3.{kind}").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loop", "trainer"])
def test_training(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if kind == "trainer":
        pytest.importorskip("accelerate")
    out = tmp_path / "trained.onnx"
    # It ends with an error itself where onnxruntime computes something else than was trained.
    subprocess.run([sys.executable, EXAMPLES / "train_with_softq.py", kind, out], check=True, capture_output=True)
    model = onnx.load(out)
    assert {function.domain for function in model.functions} == {"softq"}
    assert "Softmax" not in [node.op_type for node in model.graph.node]
