"""The examples run as their docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


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
    assert "deferred-log  4" in done.stdout
    for kind in ("onnx", "plan.json", "json", "md"):
        assert (tmp_path / f"mnist_vit.deferred-log.3.{kind}").stat().st_size > 0


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
