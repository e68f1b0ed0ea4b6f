"""The models that are measured as wholes: where they come from, what they are fed, and what their products take."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[np.generic]
Feeds = dict[str, Array]

ROOT = Path(__file__).resolve().parent.parent.parent
PAST = 512
"""Tokens before the one that is decoded."""


def folder() -> Path:
    """Return where built models are: $SOFTQ_MODELS, or `models` in softq's cache."""
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    return Path(os.environ.get("SOFTQ_MODELS", cache / "models"))


@dataclass(frozen=True)
class Work:
    """A model and its inputs.

    Attributes:
        file: Its path in `folder`, or in the repository.
        command: What builds it: a module and options behind the folder; empty for one of the repository's.
        sizes: Numbers for its named dimensions.
        feeds: Makes the inputs.
        build_seconds: How long building may take, if that is said.
        reads_weights: Whether it does little else than to read its weights.
        module: Makes the torch module of this architecture, with weights of its own, where there is one; its arguments
            are the inputs in their order.
    """

    file: str
    command: tuple[str, ...]
    sizes: Mapping[str, int]
    feeds: Callable[[np.random.Generator], Feeds]
    build_seconds: float | None = None
    reads_weights: bool = False
    module: Callable[[], torch.nn.Module] | None = None

    def path(self) -> Path:
        """Return the model's path; one that is not there is built."""
        if not self.command:
            return ROOT / self.file
        path = folder() / self.file
        if not path.exists():
            module, *options = self.command
            subprocess.run([sys.executable, "-m", module, str(path.parent), *options], check=True, cwd=ROOT)
        return path


def _tokens(rng: np.random.Generator, length: int) -> Array:
    return rng.integers(1000, 20_000, (1, length))


def _minilm(rng: np.random.Generator) -> Feeds:
    ids = _tokens(rng, 128)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def _decoder(rng: np.random.Generator) -> Feeds:
    past = {
        f"past.{layer}.{kind}": rng.normal(size=(1, 3, PAST, 64)).astype(np.float32)
        for layer in range(30)
        for kind in ("key", "value")
    }
    return {"input_ids": _tokens(rng, 1), **past}


def _mnist_vit() -> torch.nn.Module:
    from models.mnist_vit.train import VisionTransformer

    return VisionTransformer()


def _vit_small() -> torch.nn.Module:
    from models.vit_small import VisionTransformer

    return VisionTransformer()


def _digits(batch: int, build_seconds: float | None = None) -> Work:
    return Work(
        "models/mnist_vit/mnist_vit.onnx",
        (),
        {"batch": batch},
        lambda rng: {"images": rng.integers(0, 256, (batch, 1, 28, 28)).astype(np.uint8)},
        build_seconds,
        module=_mnist_vit,
    )


WORKS: Mapping[str, Work] = {
    "MNIST-ViT-1": _digits(1, 2),
    "MNIST-ViT-64": _digits(64),
    "MiniLM-1x128": Work("minilm/model.onnx", ("models.minilm",), {"batch": 1, "seq": 128}, _minilm, 5),
    "ViT-S-197": Work(
        "vit_small/model.onnx",
        ("models.vit_small",),
        {"batch": 1},
        lambda rng: {"images": rng.normal(size=(1, 3, 224, 224)).astype(np.float32)},
        module=_vit_small,
    ),
    "SmolLM2-1x256": Work(
        "smollm2/model.onnx",
        ("models.smollm2",),
        {"batch": 1, "seq": 256},
        lambda rng: {"input_ids": _tokens(rng, 256)},
        18,
    ),
    "SmolLM2-decode": Work(
        "smollm2/decoder.onnx",
        ("models.smollm2", "--decoder"),
        {"batch": 1, "seq": 1, "past": PAST},
        _decoder,
        reads_weights=True,
    ),
}
"""By the name of the table's column."""


def operations(model: ir.Model, sizes: Mapping[str, int]) -> int:
    """Return the float operations of a model's products and convolutions, a multiply-add counted as two."""
    from softq.passes.prepare import prepare

    total = 0
    for node in prepare(model, {k: v for k, v in sizes.items() if k in _names(model)}).graph:
        if node.op_type not in ("MatMul", "Gemm", "Conv"):
            continue
        left, right, out = (_dims(value) for value in (*node.inputs[:2], node.outputs[0]))
        turned = bool(node.attributes["transA"].value) if "transA" in node.attributes else False
        inner = np.prod(right[1:]) if node.op_type == "Conv" else left[-2 if turned else -1]
        total += 2 * int(np.prod(out)) * int(inner)
    return total


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes of a model's weights."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def _names(model: ir.Model) -> set[str]:
    shapes = [value.shape for value in model.graph.inputs if value.shape is not None]
    return {str(dim) for shape in shapes for dim in shape if not isinstance(dim, int)}


def _dims(value: ir.Value | None) -> list[int]:
    assert value is not None
    assert value.shape is not None, value
    return [int(d) for d in value.shape if isinstance(d, int)]
