"""Larger models for `benchmarks.onnxruntime`, and what onnxruntime's own optimizer makes of a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.cpu.works import WORKS, Work

TOKENS = 512
Feeds = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Model:
    """A whole model.

    Attributes:
        title: What the table calls it.
        work: The model and its inputs.
        kind: What the optimizer calls its architecture, its heads, and elements of a token.
        share: How many of the rounds it takes part in.
    """

    title: str
    work: Work
    kind: tuple[str, int, int]
    share: float = 1


def _tokens(rng: np.random.Generator) -> Feeds:
    ids = rng.integers(1000, 20_000, (1, TOKENS))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _prompt(rng: np.random.Generator) -> Feeds:
    return {"input_ids": _tokens(rng)["input_ids"]}


def _with(name: str, feeds: Callable[[np.random.Generator], Feeds]) -> Work:
    return replace(WORKS[name], feeds=feeds)


MODELS: Mapping[str, Model] = {
    "minilm-512": Model(f"MiniLM, {TOKENS} tokens", _with("MiniLM-1x128", _tokens), ("bert", 12, 384), 0.3),
    "vit-s": Model("ViT-S, one image", WORKS["ViT-S-197"], ("vit", 6, 384), 0.5),
    "smollm2-512": Model(f"SmolLM2, {TOKENS} tokens at once", _with("SmolLM2-1x256", _prompt), ("gpt2", 9, 576), 0.15),
    "smollm2-decode": Model(f"SmolLM2, one token behind {TOKENS}", WORKS["SmolLM2-decode"], ("gpt2", 9, 576), 0.5),
}


def optimize(model: Path, written: Path, kind: tuple[str, int, int]) -> dict[str, int] | None:
    """Write what `onnxruntime.transformers.optimizer` makes of a model; return what it fused, or None if it fails."""
    name, heads, width = kind
    try:
        from onnxruntime.transformers import optimizer

        logging.getLogger("onnxruntime.transformers").setLevel(logging.ERROR)
        made = optimizer.optimize_model(str(model), model_type=name, num_heads=heads, hidden_size=width, opt_level=0)
        made.save_model_to_file(str(written), use_external_data_format=model.with_name(f"{model.name}.data").exists())
    except Exception as error:  # It needs packages that may be absent, and not every model is one that it knows.
        print(f"onnxruntime's optimizer does not take {model}: {error}")
        return None
    return {operator: count for operator, count in made.get_fused_operator_statistics().items() if count}
