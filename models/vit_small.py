"""Builds a ViT-S with random weights as ONNX, to measure speed on its shapes: 197 tokens of width 384.

    python -m models.vit_small OUT

OUT then holds model.onnx: images float32 [batch, 3, 224, 224] to logits [batch, 1000]. The architecture is that of
A. Steiner et al., "How to train your ViT?" (TMLR 2022), ViT-S/16: 12 blocks, 6 heads, a perceptron of 1,536. Weights
are seeded random numbers, so that the model says nothing about accuracy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from models._export import export
from models.mnist_vit.train import Block

WIDTH, DEPTH, HEADS, PATCH, SIDE, CLASSES = 384, 12, 6, 16, 224, 1000
SEED, OPSET = 20261, 20


class VisionTransformer(nn.Module):
    """Patches and a class token through blocks of MNIST ViT's kind; takes images, gives logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2 + 1, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns logits, [batch, 1000], of images [batch, 3, 224, 224]."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def build(out: Path) -> None:
    """Writes the model to `out`."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    images = {"images": torch.randn(2, 3, SIDE, SIDE)}
    export(VisionTransformer(), out / "model.onnx", images, ["logits"], {"images": {0: "batch"}}, OPSET)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build a ViT-S with random weights.")
    parser.add_argument("out", type=Path, help="folder to write")
    build(parser.parse_args().out)
