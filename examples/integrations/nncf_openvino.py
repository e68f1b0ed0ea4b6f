"""NNCF and OpenVINO behind softq: `python examples/integrations/nncf_openvino.py`."""

from __future__ import annotations

import logging
from pathlib import Path

import nncf
import numpy as np
import openvino

import softq
from softq.integrations.nncf import ignored_names, to_openvino

HOME = Path(__file__).resolve().parents[2] / "models" / "mnist_vit"
images = np.load(HOME / "data.npz")["images"][:64]
calibration = nncf.Dataset(list(np.load(HOME / "calibration.npz")["images"][:16, None]))
nncf.set_log_level(logging.ERROR)


def error(model: openvino.Model) -> float:
    logits = openvino.compile_model(model, "CPU")(images)[0]
    return float(np.linalg.norm(logits - exact) / np.linalg.norm(exact))


exact = openvino.compile_model(openvino.convert_model(HOME / "mnist_vit.onnx"), "CPU")(images)[0]
converted = softq.convert(HOME / "mnist_vit.onnx", bits=4).model
model = to_openvino(converted)
names = ignored_names(converted, model)
scope, kind = nncf.IgnoredScope(names=names), nncf.ModelType.TRANSFORMER
with_names = error(nncf.quantize(model, calibration, model_type=kind, ignored_scope=scope))
without = error(nncf.quantize(model, calibration, model_type=kind))

left = sum(operator.get_type_name() == "Softmax" for operator in model.get_ops())
print(f"{left} softmaxes left; {len(names)} names; relative error {with_names:.3f}, without names {without:.3f}")
assert left == 0
assert 0 < with_names < 0.06
assert without > 1
