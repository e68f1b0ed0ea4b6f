"""What is trained on with a replaced softmax: the models, their text or digits, and the steps of a short training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from models import smollm2
from models._common import cache_dir
from models._modules import HERE, mnist_vit, wikipedia_lm
from models._wikipedia import articles
from models.measure import accuracy, perplexity
from models.mnist_vit import train as vit
from models.splits import ARTICLES, DIGITS, SPLITS
from models.wikipedia_lm import train as language

Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]
"""Returns a batch of inputs and labels."""


@dataclass(frozen=True)
class Task:
    """A trained model and how it is trained on.

    Attributes:
        name: The folder in models/.
        module: Makes the trained module; its forward takes one tensor.
        example: A batch as it is trained on.
        axes: Names of the axes that may change, by their number.
        draw: Makes what draws batches of the training part.
        loss: Of outputs and labels.
        figure: Measures a model on a file of data.
        steps: Steps of the training.
        rate: Greatest learning rate; it rises over the first twentieth and falls as a cosine.
        half: Whether products are in bfloat16 in training.
        decay: Weight decay of matrices.
        folder: Where the model and its data are.
        part: What the names of the parameters that are trained hold.
        compiled: Whether torch.compile of the whole model is worth its time; else its softmaxes are compiled alone.
        distilled: Whether what is learned are the outputs of the model itself as it was before, in float, in the place
            of labels.
    """

    name: str
    module: Callable[[], nn.Module]
    example: Tensor
    axes: Mapping[int, str]
    draw: Callable[[], Draw]
    loss: Callable[[Tensor, Tensor], Tensor]
    figure: Callable[[Any, Path], float]
    steps: int
    rate: float
    half: bool
    decay: float
    folder: Path
    part: str = ""
    compiled: bool = True
    distilled: bool = False

    @property
    def model(self) -> Path:
        """The ONNX model that was exported of it."""
        own = self.folder / f"{self.name}.onnx"
        return own if own.exists() else self.folder / "model.onnx"


def _digits() -> Draw:
    images, labels = vit.digits()
    seen = list(DIGITS["training"])
    x, y = torch.from_numpy(images[seen]).float() / 255.0, torch.from_numpy(labels[seen])

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(x), (vit.BATCH,), generator=generator)
        return (vit.augment(x[chosen], generator) * 255.0).round().to(torch.uint8), y[chosen]

    return draw


def _text() -> Draw:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(HERE / "wikipedia_lm" / "tokenizer.json"))
    everything = articles()
    ids = torch.tensor([i for at in ARTICLES["training"] for i in tokenizer.encode(everything[at].text + "\n\n").ids])

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(ids) - language.CONTEXT, (language.BATCH,), generator=generator)
        rows = torch.stack([ids[s : s + language.CONTEXT + 1] for s in starts.tolist()])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    return draw


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean negative log likelihood of the tokens, [batch, seq], by logits [batch, seq, vocabulary]."""
    return functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


class Logits(nn.Module):
    """A language model of transformers without its cache, its logits alone."""

    def __init__(self) -> None:
        super().__init__()
        smollm2.build(SMOLLM2)
        self.model = smollm2.module()

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocabulary] of token ids [batch, seq]."""
        return self.model(input_ids=input_ids, use_cache=False).logits


SMOLLM2 = cache_dir() / "models" / "smollm2"
_TOKENS = 512


def _windows() -> Draw:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(SMOLLM2 / "tokenizer.json"))
    everything, places = articles(), SPLITS["smollm2"].parts["training"]
    ids = torch.tensor(
        [i for at in places for i in tokenizer.encode(everything[at].text + "\n\n", add_special_tokens=False).ids]
    )

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        at = int(torch.randint(len(ids) - _TOKENS, (1,), generator=generator))
        return ids[None, at : at + _TOKENS], ids[None, at + 1 : at + _TOKENS + 1]

    return draw


TASKS: Mapping[str, Callable[[], Task]] = {
    # A tenth of the steps that made each, at half their greatest rate.
    "mnist_vit": lambda: Task(
        "mnist_vit", mnist_vit, torch.zeros(vit.BATCH, 1, 28, 28, dtype=torch.uint8), {0: "batch"}, _digits,
        lambda logits, labels: functional.cross_entropy(logits, labels, label_smoothing=vit.SMOOTHING),
        accuracy, vit.EPOCHS * (len(DIGITS["training"]) // vit.BATCH) // 10, vit.PEAK_RATE / 2, False,
        vit.WEIGHT_DECAY, HERE / "mnist_vit",
    ),
    "wikipedia_lm": lambda: Task(
        "wikipedia_lm", wikipedia_lm, torch.zeros(language.BATCH, language.CONTEXT, dtype=torch.int64),
        {0: "batch"}, _text, next_token_loss, perplexity, language.STEPS // 10,
        language.PEAK_RATE / 2, True, language.WEIGHT_DECAY, HERE / "wikipedia_lm",
    ),
    "smollm2": lambda: Task(
        "smollm2", Logits, torch.zeros(1, _TOKENS, dtype=torch.int64), {}, _windows, next_token_loss, perplexity,
        200, 2e-4, True, 0.0, SMOLLM2, part="self_attn", compiled=False, distilled=True,
    ),
}  # fmt: skip
"""By the name of the folder."""


def calibration(task: Task, file: str) -> list[tuple[Tensor]]:
    """Return the samples of a file, 8 at a time, as calls of the module."""
    with np.load(task.folder / file) as arrays:
        (samples,) = (arrays[name] for name in arrays if not name.startswith("label."))
    return [(torch.from_numpy(samples[at : at + 8]),) for at in range(0, len(samples), 8)]
