"""torch.onnx.export, then softq as one pass of onnx_ir among others: `python examples/integrations/torch_onnx.py`."""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnx_ir.passes.common import CheckerPass, RemoveUnusedNodesPass

import softq


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = torch.nn.MultiheadAttention(32, 4, batch_first=True), torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.mix(x, x, x, need_weights=False)[0]), -1)


torch.manual_seed(0)
model, x = Model().eval(), torch.randn(2, 10, 32)
program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
assert program is not None
passes = ir.passes.Sequential(softq.SoftqPass(bits=4), RemoveUnusedNodesPass(), CheckerPass(full_check=True))
program.model = passes(program.model).model

left = sum(node.op_type == "Softmax" for node in program.model.graph)
functions = [name for _, name, _ in program.model.functions]
distance = float((program(x)[0] - model(x).detach()).abs().max())
print(f"{left} softmax left, the classifier's; functions {functions}; outputs differ by at most {distance:.4f}")
assert left == 1
assert len(functions) == 1
assert 0 < distance < 0.01
