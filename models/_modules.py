"""The trained models as modules of torch: those that ONNX files hold, with their weights."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import onnx
import torch
from onnx import numpy_helper
from torch import nn

from models._common import BuildError
from models.mnist_vit.train import VisionTransformer
from models.wikipedia_lm.train import LanguageModel

HERE = Path(__file__).parent

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def mnist_vit() -> VisionTransformer:
    """Return the trained vision transformer; uint8 images [batch, 1, 28, 28] to logits [batch, 10]."""
    return with_weights(VisionTransformer(), HERE / "mnist_vit" / "mnist_vit.onnx")


def wikipedia_lm() -> LanguageModel:
    """Return the trained language model; token ids [batch, seq] to logits [batch, seq, 1024]."""
    return with_weights(LanguageModel(), HERE / "wikipedia_lm" / "wikipedia_lm.onnx")


def with_weights(module: ModuleT, path: Path) -> ModuleT:
    """Return the module in evaluation mode with the weights of the ONNX model that was exported from it.

    Exporters fold the transposition of a linear layer's matrix into the initializer and name it anew: parameters that
    are not found by name are the second operands of matrix products, in the order of the graph.

    Raises:
        BuildError: the file has other weights than the module takes.
    """
    graph = onnx.load(path).graph
    arrays = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in graph.initializer}
    named = dict(module.named_parameters())
    products = [node.input[1] for node in graph.node if node.op_type == "MatMul" and node.input[1] in arrays]
    matrices = iter([name for name in products if name not in named])
    state: dict[str, torch.Tensor] = {}
    for name, parameter in named.items():
        found = arrays[name] if name in arrays else arrays[next(matrices, "")].T
        if found.shape != parameter.shape:
            raise BuildError(f"{path.name}: {name} is {tuple(found.shape)}, expected {tuple(parameter.shape)}")
        state[name] = found
    module.load_state_dict(state, strict=False)
    return module.eval()
