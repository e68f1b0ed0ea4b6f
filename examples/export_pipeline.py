"""softq as a step of an export pipeline: torch.onnx.export, then onnx_ir passes, then the file.

    python examples/export_pipeline.py OUT.onnx

Needs the extra `torch`. Each softq pass is an `onnx_ir` pass, so a `Sequential` holds it beside any other.
"""

from __future__ import annotations

import sys

import onnx_ir as ir
import torch
from onnx_ir.passes.common import CheckerPass, RemoveUnusedNodesPass

from softq.passes.defer_normalizer import DeferNormalizer
from softq.passes.locate import Locate
from softq.passes.normalize import Normalize
from softq.passes.replace import Replace


class Attention(torch.nn.Module):
    """One attention block, as an export traces it."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attention output, [batch, tokens, width]."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


def export(out: str) -> None:
    """Export the block with its softmax replaced by the 4-bit deferred-log."""
    torch.manual_seed(0)
    x = torch.randn(2, 10, 32)
    program = torch.onnx.export(Attention().eval(), (x,), dynamo=True, verbose=False)
    assert program is not None
    pipeline = ir.passes.Sequential(
        Locate(),
        Normalize(),
        Replace("deferred-log", {"bits": 4, "r": 1}),
        DeferNormalizer(),
        RemoveUnusedNodesPass(),
        CheckerPass(full_check=True),
    )
    result = pipeline(program.model)
    print(f"modified: {result.modified}; functions: {[function.name for function in result.model.functions.values()]}")
    ir.save(result.model, out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/export_pipeline.py OUT.onnx")
    export(sys.argv[1])
