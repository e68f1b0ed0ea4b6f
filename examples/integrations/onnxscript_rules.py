"""onnxscript's rewriter with softq's rules: `python examples/integrations/onnxscript_rules.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnxscript.rewriter import RewritePass

from softq.integrations.onnxscript import softmax_rules
from softq.passes.defer_normalizer import DeferNormalizer

HOME = Path(__file__).resolve().parents[2] / "models" / "mnist_vit"
images = np.load(HOME / "data.npz")["images"][:64]


def logits(model: ir.Model) -> np.ndarray:
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"images": images})[0])


model = ir.load(HOME / "mnist_vit.onnx")
before = logits(model)
changed = ir.passes.Sequential(RewritePass(softmax_rules(bits=4)), DeferNormalizer())(model)
after = logits(changed.model)

left = sum(node.op_type == "Softmax" for node in model.graph)
calls = sum(node.domain == "softq" for node in model.graph)
distance = float(np.linalg.norm(after - before) / np.linalg.norm(before))
print(f"{calls} softmaxes replaced, {left} left; the logits' relative error is {distance:.4f}")
assert (calls, left) == (4, 0)
assert 0 < distance < 0.06
