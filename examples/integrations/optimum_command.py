"""Optimum's export, then the command `optimum-cli softq`: `python examples/integrations/optimum_command.py`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import onnx
import torch
from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import BertConfig, BertModel

from softq.integrations.optimum import register

torch.manual_seed(0)
sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "num_hidden_layers": 2}
ids = torch.randint(0, 97, (3, 12))
feed = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
register()
with tempfile.TemporaryDirectory() as name:
    model, exported, converted = (str(Path(name) / part) for part in ("model", "exported", "converted"))
    BertModel(BertConfig(vocab_size=97, **sizes)).eval().save_pretrained(model)
    export = ["optimum-cli", "export", "onnx", "--model", model, "--task", "feature-extraction", exported]
    subprocess.run(export, check=True)
    subprocess.run(["optimum-cli", "softq", "--onnx_model", exported, "--output", converted, "--bits", "4"], check=True)
    graph = onnx.load(Path(converted) / "model.onnx").graph
    before, after = (ORTModelForFeatureExtraction.from_pretrained(it)(**feed)[0] for it in (exported, converted))
calls, left = sum(node.domain == "softq" for node in graph.node), sum(node.op_type == "Softmax" for node in graph.node)
distance = float((after - before).norm() / before.norm())
print(f"{calls} softmaxes replaced, {left} left; relative error of the hidden state {distance:.4f}")
assert (calls, left) == (2, 0)
assert 0 < distance < 0.06
