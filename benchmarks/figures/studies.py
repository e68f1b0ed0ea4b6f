"""Which models, data and settings the figures are of, and the hashes by which each is known again."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import softq
from models.ocr import LINE_ACCURACY
from models.splits import file_of
from softq import Sampling
from softq.methods import METHODS
from softq.metrics import Kind, Metric, find_metric
from softq.modelfile import graph_hash, load, weights_fingerprint
from softq.rowprog import to_text

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "figures.json"
COMMAND = "make figures"

Settings = Mapping[str, int | float | str]

METHOD, BITS, DRAWS = "deferred-log", (5, 4, 3, 2), 3
REST: Settings = {"rest": "mean"}
"""The form of the method whose last code weighs something, at the widths where much lies behind the last step."""
REST_BITS = (4, 3, 2)
FORMS: tuple[tuple[Settings, Sequence[int]], ...] = (({}, BITS), (REST, REST_BITS))
"""The forms of the method that are measured, each at these widths."""
RIVALS: tuple[tuple[str, Settings], ...] = (("uniform", {"bits": 8}), ("log2", {"bits": 4}))


@dataclass(frozen=True)
class Study:
    """One model with its metric and data.

    Attributes:
        name: What the tables call it.
        builder: What builds the model: a module and options behind the folder; empty for a committed one.
        folder: Folder of the model, below the root or the models' cache; `builder` writes there or into its parent.
        model: Name of the model's file.
        split: Name of its data in `models.splits`.
        metric: The metric.
        batch: Samples a run.
    """

    name: str
    builder: str
    folder: str
    model: str
    split: str
    metric: Metric
    batch: int

    @property
    def distance(self) -> Metric:
        """The metric that shows small changes."""
        return find_metric(self.metric.distance)

    def place(self, models: Path) -> Path:
        """Return the folder of the model and its data."""
        return models / self.folder if self.builder else ROOT / self.folder

    def data(self, models: Path, part: str) -> Path:
        """Return the file of a part of the data."""
        return self.place(models) / file_of(self.split, part)


STUDIES = (
    Study("MNIST ViT", "", "models/mnist_vit", "mnist_vit.onnx", "mnist_vit", find_metric("top1-accuracy"), 50),
    Study("Wikipedia language model", "", "models/wikipedia_lm", "wikipedia_lm.onnx", "wikipedia_lm",
          find_metric("perplexity"), 4),
    Study("all-MiniLM-L6-v2", "models.minilm", "minilm", "model.onnx", "minilm", find_metric("cosine"), 29),
    Study("SmolLM2-135M", "models.smollm2", "smollm2", "model.onnx", "smollm2", find_metric("perplexity"), 1),
    Study("PP-OCRv4 recognizer", "models.ocr", "ocr/ppocr-v4", "model.onnx", "ocr", LINE_ACCURACY, 16),
    Study("PP-OCRv6 recognizer", "models.ocr", "ocr/ppocr-v6", "model.onnx", "ocr", LINE_ACCURACY, 16),
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What is measured: a method with settings, and the seed of its calibration, None without."""

    method: str
    settings: Settings
    draw: int | None = None

    def convert(self, study: Study, models: Path) -> softq.Conversion[Any]:
        """Return the model converted so; the calibration data are used for a draw alone."""
        path = study.place(models) / study.model
        if self.draw is None:
            return softq.convert(path, method=self.method, settings=self.settings)
        calibration = str(study.data(models, "calibration"))
        sampling = Sampling(seed=self.draw)
        return softq.convert(
            path, method=self.method, settings=self.settings, calibration=calibration, sampling=sampling
        )

    def program_hash(self) -> str:
        """Return the hash of the method's program with these settings."""
        method = METHODS.get(self.method)
        options = method.resolve(method.configure(self.settings), self.draw is not None)
        return text_hash(to_text(method.program(options)).encode())

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"method": self.method, "settings": dict(self.settings), "draw": self.draw}


SETTINGS: tuple[Setting, ...] = (
    *(
        Setting(METHOD, {"bits": bits, **form}, draw)
        for form, widths in FORMS
        for bits in widths
        for draw in (None, *range(DRAWS))
    ),
    *(Setting(method, settings) for method, settings in RIVALS),
)


def kind_of(metric: Metric) -> Kind:
    """Return what the metric's value is; every metric here is made of samples."""
    assert metric.kind is not None, metric.name
    return metric.kind


def identity_of(path: Path) -> str:
    """Return what a model is: the hash of its graph and the fingerprint of its weights."""
    model = load(path)
    return text_hash((graph_hash(model) + weights_fingerprint(model)).encode())


def text_hash(content: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of what measures."""
    return {module.__name__: module.__version__ for module in (np, onnx, onnxruntime, softq)}


def keep(results: Path, command: str, studies: Sequence[Study], found: Mapping[str, Any]) -> None:
    """Put the record of one study into a file of results; the others stay."""
    old = json.loads(results.read_text(encoding="utf-8"))["studies"] if results.exists() else []
    kept = {**{one["name"]: one for one in old}, str(found["name"]): found}
    ordered = [kept[study.name] for study in studies if study.name in kept]
    document = {"schema": 1, "command": command, "studies": ordered}
    text = json.dumps(document, indent=1)
    # Numbers of samples in a line instead of a line each.
    results.write_text(re.sub(r"(?<=[\d\[,])\n\s+(?=[-\d\]])", "", text) + "\n", encoding="utf-8")


def main_of(
    description: str, results: Path, command: str, studies: Sequence[Study], measure: Callable[[Study, Path], Any]
) -> None:
    """Measure the studies that the command line asks for, and keep each record when it is there."""
    parser = argparse.ArgumentParser(description=description)
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="where built models are kept")
    parser.add_argument("--only", action="append", choices=[s.name for s in studies], help="measure this study alone")
    given = parser.parse_args()
    given.models.mkdir(parents=True, exist_ok=True)
    for study in studies:
        if not given.only or study.name in given.only:
            keep(results, command, studies, measure(study, given.models))
