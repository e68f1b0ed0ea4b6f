"""Trains the small causal language model on Wikipedia text and writes its ONNX model, its token ids and its card.

    python -m models.wikipedia_lm.train [--out FOLDER]

The recipe is fixed, nothing is chosen on other articles than those of training (`models.splits`), and one thread and
one seed make a run repeatable on one machine with one version of torch.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

from models._common import replacing, write_npz
from models._export import export
from models._wikipedia import articles, windows
from models.measure import write_card
from models.splits import ARTICLES, SPLITS, count, file_of

SEED = 20261
VOCABULARY = 1024
WIDTH, DEPTH, HEADS, CONTEXT = 128, 4, 4, 256
STEPS = 2700
BATCH = 16
WARMUP = 100
PEAK_RATE, LAST_RATE = 4e-3, 1e-4
WEIGHT_DECAY = 0.1
# The text passes about 22 times, so that without it the model would learn it by heart.
DROPOUT = 0.1
OPSET = 20


def rotations() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the cosines and sines of the rotary positions, each [CONTEXT, WIDTH / HEADS]."""
    half = WIDTH // HEADS // 2
    rate = 10000.0 ** (-torch.arange(half) / half)
    angle = torch.outer(torch.arange(CONTEXT), rate).repeat(1, 2)
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Returns queries or keys [batch, heads, seq, head width] turned by their positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Block(nn.Module):
    """A pre-norm transformer block whose attention is written out: matmul, scale, mask, softmax, matmul."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        for layer in (self.qkv, self.up):
            nn.init.normal_(layer.weight, std=WIDTH**-0.5)
        # Each block starts as the identity, which lets so short a training take large steps.
        for layer in (self.out, self.down):
            nn.init.zeros_(layer.weight)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the tokens after attention and the perceptron, [batch, seq, WIDTH]; `mask` is added to the scores."""
        batch, seq, _ = x.shape
        q, k, v = (
            part.reshape(batch, seq, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        scores = torch.matmul(q, k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5
        p = torch.softmax(scores + mask, dim=-1)
        mixed = self.out(torch.matmul(p, v).transpose(1, 2).reshape(batch, seq, WIDTH))
        x = x + functional.dropout(mixed, DROPOUT, self.training)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.norm2(x)))), DROPOUT, self.training)


class LanguageModel(nn.Module):
    """4 blocks of width 128 with rotary positions; the embedding serves as output matrix too."""

    cos: torch.Tensor
    sin: torch.Tensor
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH)
        cos, sin = rotations()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        # The most negative float, as exported language models have it, rather than minus infinity.
        blocked = torch.full((CONTEXT, CONTEXT), torch.finfo(torch.float32).min).triu(1)
        self.register_buffer("mask", blocked, persistent=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns logits [batch, seq, VOCABULARY] of token ids [batch, seq], seq at most CONTEXT."""
        seq = input_ids.shape[1]
        cos, sin, mask = self.cos[:seq], self.sin[:seq], self.mask[:seq, :seq]
        x = functional.dropout(self.embedding(input_ids), DROPOUT, self.training)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return functional.linear(self.norm(x), self.embedding.weight)


def tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Returns a byte-level BPE tokenizer of VOCABULARY tokens trained on these texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    return made


def train(ids: torch.Tensor) -> LanguageModel:
    """Returns the model after the fixed recipe on one long row of token ids: its last weights."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = LanguageModel()
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=PEAK_RATE,
        betas=(0.9, 0.95),
    )

    def rate(step: int) -> float:
        if step < WARMUP:
            return (step + 1) / WARMUP
        fall = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
        return fall + (1 - fall) * LAST_RATE / PEAK_RATE

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    started, smooth = time.monotonic(), math.log(VOCABULARY)
    for step in range(STEPS):
        starts = torch.randint(len(ids) - CONTEXT, (BATCH,), generator=generator)
        batch = torch.stack([ids[s : s + CONTEXT + 1] for s in starts.tolist()])
        # Matrix products in bfloat16 halve the time where the processor has them; weights and export are float32.
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        smooth += 0.02 * (loss.item() - smooth)
        if step % 100 == 99:
            print(f"step {step + 1}/{STEPS} loss {smooth:.4f} {time.monotonic() - started:.0f} s", flush=True)
    return model


def main() -> None:
    """Trains, exports, writes the token ids and measures them through onnxruntime."""
    parser = argparse.ArgumentParser(description="Train the Wikipedia language model and write model, data and card.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write (default: this one)")
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    everything = articles()
    parts = {part: [everything[at] for at in places] for part, places in ARTICLES.items()}
    seen = parts["training"]
    tokens = tokenizer([article.text for article in seen])
    ids = [i for article in seen for i in tokens.encode(article.text + "\n\n").ids]
    print(f"{len(seen)} articles, {len(ids)} tokens", flush=True)
    model = train(torch.tensor(ids))
    example = torch.zeros((2, 16), dtype=torch.int64)
    export(
        model,
        out / "wikipedia_lm.onnx",
        {"input_ids": example},
        ["logits"],
        {"input_ids": {0: "batch", 1: "seq"}},
        OPSET,
    )
    for part in SPLITS["wikipedia_lm"].files:
        texts = (tokens.encode(article.text).ids for article in parts[part])
        cut = windows(texts, CONTEXT, count("wikipedia_lm", part))
        label = {} if part == "calibration" else {"label.tokens": cut}
        write_npz(out / file_of("wikipedia_lm", part), {"input_ids": cut} | label)
    with replacing(out / "tokenizer.json") as scratch:
        tokens.save(str(scratch))
    write_card(out, "wikipedia_lm")


if __name__ == "__main__":
    main()
