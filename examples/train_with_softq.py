"""Training with a quantized softmax, from a training script to a converted ONNX model.

    python examples/train_with_softq.py loop OUT.onnx       a plain loop, any module (needs softq[torch])
    python examples/train_with_softq.py trainer OUT.onnx    transformers' Trainer (and transformers, accelerate)

Both train with deferred-log at 2 bits, export with the exact softmax, put the method back, and check that onnxruntime
computes what was trained.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor, nn

import softq
import softq.torch as st
from softq.modelfile import save

LENGTH, TOKENS = 24, 16


class Sorter(nn.Module):
    """One block that learns to say the tokens of a row in order."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(TOKENS, width), nn.Parameter(torch.randn(LENGTH, width))
        self.mix = nn.MultiheadAttention(width, 4, batch_first=True)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, TOKENS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, LENGTH, TOKENS] of tokens [batch, LENGTH]."""
        x = self.embedding(tokens) + self.places
        return self.think(x + self.mix(x, x, x, need_weights=False)[0])


GENERATORS = {part: torch.Generator().manual_seed(seed) for seed, part in enumerate(("training", "calibration"))}


def draw(rows: int, part: str) -> tuple[Tensor, Tensor]:
    """Return rows of tokens, and the same sorted; what numbers are fitted on is not what is trained on."""
    tokens = torch.randint(TOKENS, (rows, LENGTH), generator=GENERATORS[part])
    return tokens, tokens.sort(-1).values


def loop(out: Path) -> None:
    """Train a module in a loop of one's own: its softmaxes are found in the trace, their curve is learned, too."""
    model = Sorter()
    batches, shapes = [(draw(32, "calibration")[0],) for _ in range(4)], {"tokens": {0: torch.export.Dim("batch")}}
    converted = st.convert(
        model, batches[0], bits=2, calibration=batches, learn=("r", "first", "shift"), backward="quantized",
        dynamic_shapes=shapes,
    )  # fmt: skip
    print(f"{len(converted.plan.sites)} softmax, fitted on {len(batches)} batches: {converted.plan.sites[0].fitted}")
    optimizer = torch.optim.AdamW(converted.module.parameters(), lr=3e-3)
    for step in range(200):
        tokens, wanted = draw(32, "training")
        loss = nn.functional.cross_entropy(converted.module(tokens).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    tokens, _ = draw(64, "training")
    with torch.no_grad():
        check(converted.export().model, tokens, converted.module.eval()(tokens), out)


def trainer(out: Path) -> None:
    """Train a model of transformers with its own Trainer: `softq` is one of its attention implementations."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    st.register(method="deferred-log", bits=2, backward="quantized")
    config = LlamaConfig(
        vocab_size=TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.set_attn_implementation("softq")
    # Each row is said twice: the second time, every token can be known.
    halves = torch.randint(TOKENS, (512, LENGTH // 2))
    rows = [{"input_ids": row, "labels": row} for row in torch.cat([halves, halves], 1)]
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=6, per_device_train_batch_size=32, learning_rate=3e-3, logging_steps=24,
            report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=rows).train()

    class Logits(nn.Module):
        """The language model without its cache."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Tensor) -> Tensor:
            return self.model(input_ids=tokens, use_cache=False).logits

    trained, tokens = Logits().eval(), rows[0]["input_ids"][None].expand(4, -1).contiguous()
    with torch.no_grad():
        wanted = trained(tokens)
    # Exported with the exact softmax, which is found in the graph and replaced.
    model.set_attn_implementation("eager")
    program = torch.onnx.export(trained, (tokens,), dynamo=True, verbose=False)
    assert program is not None
    check(softq.convert(program.model, bits=2).model, tokens, wanted, out)


def check(model: ir.Model, tokens: Tensor, trained: Tensor, out: Path) -> None:
    """Write a converted model and hold onnxruntime's logits against those of the module that was trained."""
    save(model, out)
    session = onnxruntime.InferenceSession(out)
    (logits,) = session.run(None, {session.get_inputs()[0].name: tokens.numpy()})
    difference = np.abs(logits - trained.numpy()).max()
    print(f"{out}: logits of onnxruntime differ from the trained ones by {difference:.1e}")
    if not difference < 1e-4:
        raise SystemExit("this is not what was trained")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("loop", "trainer"):
        raise SystemExit("usage: python examples/train_with_softq.py loop|trainer OUT.onnx")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    {"loop": loop, "trainer": trainer}[sys.argv[1]](Path(sys.argv[2]))
