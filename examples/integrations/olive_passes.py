"""Olive's workflows with softq as a pass, and as a surgeon: `python examples/integrations/olive_passes.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from olive.workflows import run

from softq.integrations.olive import package_config

HOME = Path(__file__).resolve().parents[2] / "models" / "mnist_vit"
images = np.load(HOME / "data.npz")["images"][:64]


def logits(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"images": images})[0])


exact, calls, errors = logits(HOME / "mnist_vit.onnx"), [], []
surgery = {"type": "GraphSurgeries", "surgeries": [{"surgeon": "SoftqSurgeon", "bits": 4}]}
with tempfile.TemporaryDirectory() as name:
    source = {"type": "ONNXModel", "model_path": str(HOME / "mnist_vit.onnx")}
    for step in ({"type": "Softq", "bits": 4}, surgery):
        run({"input_model": source, "passes": {"step": step}, "output_dir": name}, package_config=package_config())
        calls.append(sum(node.domain == "softq" for node in onnx.load(Path(name) / "model.onnx").graph.node))
        errors.append(float(np.linalg.norm(logits(Path(name) / "model.onnx") - exact) / np.linalg.norm(exact)))
print(f"{calls} softmaxes replaced by pass and surgeon; the logits' relative errors are {np.round(errors, 4).tolist()}")
assert calls == [4, 4]
assert all(0 < error < 0.06 for error in errors)
