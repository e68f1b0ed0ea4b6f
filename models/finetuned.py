"""What `python -m models.finetune` measures, and the table of what it measured (no torch)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softq.methods import METHODS

RESULTS = Path(__file__).with_name("finetune.json")
COMMAND = "python -m models.finetune"
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Choice:
    """A method and how it is trained with; the name None is the exact softmax of torch, in float.

    Attributes:
        method: Its name.
        bits: Of its codes, where it has them.
        learn: Options that are learned.
    """

    method: str | None
    bits: int | None = None
    learn: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What tables call it."""
        return "float" if self.method is None else self.method + ("" if self.bits is None else f", {self.bits} bits")


def _choices(names: Sequence[str]) -> tuple[Choice, ...]:
    learned = {"consmax": ("beta", "gamma"), "ssmax": ("s",)}
    made = [Choice(name, None, learned.get(name, ())) for name in names]
    return (Choice(None), Choice("deferred-log", 2), Choice("deferred-log", 3), *made)


CHOICES: Mapping[str, tuple[Choice, ...]] = {
    "mnist_vit": _choices([method.name for method in METHODS.entries().values() if not method.drop_in]),
    "wikipedia_lm": _choices(["consmax", "relu", "sigmoid", "softpick", "sparsemax", "ssmax"]),
    "smollm2": (Choice(None), Choice("deferred-log", 2)),
}
"""What each model is trained with: the first needs all that are for training."""


_FIGURES = ("before", "after", "built")
"""Of a run, as `models.finetune` names them."""


def results() -> dict[str, Any]:
    """Return the finished runs, by `MODEL/METHOD/SEED`."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"command": COMMAND, "runs": {}}


def table(found: Mapping[str, Any]) -> str:
    """Return the tables of docs/training.md: per model and method the figures of all seeds.

    Perplexities have two columns more: their ratio to the float model's, before and behind training with the same seed.
    """
    runs: Mapping[str, Mapping[str, Any]] = found["runs"]
    parts = [
        f"From `{found['command']}`, on evaluation data: mean over seeds, and in brackets the least and the greatest."
    ]
    for name, choices in CHOICES.items():
        unit = "accuracy" if name == "mnist_vit" else "perplexity"
        ratios = ["without / float", "trained / float"] if unit == "perplexity" else []
        heads = ["method", "without training", "trained", "built for cpu", *ratios, "seeds"]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for choice in choices:
            mine = {seed: runs[key] for seed in SEEDS if (key := f"{name}/{choice.label}/{seed}") in runs}
            if mine:
                cells = [_cell([one[key] for one in mine.values() if key in one]) for key in _FIGURES]
                floats = {seed: runs.get(f"{name}/{choices[0].label}/{seed}") for seed in mine}
                for key in _FIGURES[: len(ratios)]:
                    both = [(one, floats[seed]) for seed, one in mine.items()]
                    cells.append(_cell([one[key] / other[key] for one, other in both if other is not None]))
                lines.append(f"| {choice.label} | {' | '.join(cells)} | {len(mine)} |")
        if len(lines) > 2:
            parts.append(f"**{name}**, {unit}:\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = sum(values) / len(values)
    digits = 4 if mean < 10 else 2
    spread = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if min(values) != max(values) else ""
    return f"{mean:.{digits}f}{spread}"
