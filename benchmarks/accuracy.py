"""What every method costs in accuracy on real models, at every width: one command.

    python -m benchmarks.accuracy [--models DIR] [--only MODEL] [--methods LIST]

Sweeps the methods (`softq.sweeps`) over the ViT and the language model of `models/`, all-MiniLM-L6-v2 and SmolLM2-135M,
options that are fitted fitted on each model's calibration data, and writes benchmarks/accuracy.json. Of a method with
several forms the best one of each width is shown. A sweep that is interrupted goes on where it stopped: its folders lie
beside the models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.splits import file_of, files_of
from softq.methods import METHODS
from softq.sweeps import run
from softq.sweeps.records import Outcome, Study

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "accuracy.json"
COMMAND = "python -m benchmarks.accuracy"
BITS = (2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class Subject:
    """A model, its metric and its data."""

    name: str
    builder: str | None
    folder: str
    metric: str
    data: str


SUBJECTS = (
    Subject("MNIST ViT", None, "models/mnist_vit", "top1-accuracy", file_of("mnist_vit", "development")),
    Subject(
        "Wikipedia language model", None, "models/wikipedia_lm", "perplexity", file_of("wikipedia_lm", "development")
    ),
    Subject("all-MiniLM-L6-v2", "models.minilm", "minilm", "spearman", file_of("minilm", "development")),
    Subject("SmolLM2-135M", "models.smollm2", "smollm2", "perplexity", files_of("smollm2", "development")[0]),
)

FORMS: Mapping[str, Sequence[Mapping[str, str]]] = {
    "uniform": ({"top": "site"},),
    "log2": ({"threshold": "ratio"},),
    "adalog": ({"zero": "beyond"},),
    "log-sqrt2": ({"zero": "beyond"},),
    "bias-corrected": ({"bias": "query"},),
}
"""Forms of a method beside its default, of which the best is shown."""


def folder_of(subject: Subject, models: Path) -> Path:
    """Return the folder of a model, which is built if it is not committed."""
    if subject.builder is None:
        return ROOT / subject.folder
    folder = models / subject.folder
    subprocess.run([sys.executable, "-m", subject.builder, str(folder)], check=True, cwd=ROOT)
    return folder


def sweeps(
    subject: Subject, models: Path, names: Sequence[str], threads: int | None
) -> list[tuple[Study, Sequence[Outcome]]]:
    """Return what each form of each method measured on one model."""
    folder = folder_of(subject, models)
    found: list[tuple[Study, Sequence[Outcome]]] = []
    for name in names:
        method = METHODS.get(name)
        if not method.drop_in:
            continue
        for form in ({}, *FORMS.get(name, ())):
            label = "_".join([name, *(f"{k}-{v}" for k, v in form.items())])
            out = models / "accuracy" / subject.folder.replace("/", "_") / label
            out.parent.mkdir(parents=True, exist_ok=True)
            result = run(
                next(iter(sorted(folder.glob("*.onnx"), key=lambda path: len(path.name)))) if subject.builder is None
                else folder / "model.onnx",
                str(folder / subject.data), out=out, metric=subject.metric, methods=name,
                bits=",".join(map(str, BITS)), options=[f"{name}.{k}={v}" for k, v in form.items()],
                calibration=str(folder / file_of(folder.name, "calibration")),
                batch=1 if subject.metric == "perplexity" else 50, max_length=1024, threads=threads,
            )  # fmt: skip
            found.append((result.study, result.outcomes))
            for outcome in result.outcomes:
                print(subject.name, label, outcome.setting.options.get("bits"), outcome.metric.value, flush=True)
    return found


def row(outcome: Outcome) -> dict[str, Any]:
    """Return one setting as plain values; errors are means over the sites."""
    errors = outcome.sites.values()
    products = [one.output_error for one in errors if one.output_error is not None]
    return {
        "method": outcome.setting.method, "options": dict(outcome.setting.options), "value": outcome.metric.value,
        "loss": outcome.loss.value, "low": outcome.loss.low, "high": outcome.loss.high,
        "row_sum": float(np.mean([one.mean_row_sum for one in errors])) if errors else None,
        "output_error": float(np.mean(products)) if products else None,
    }  # fmt: skip


def best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return of each method and width the form that loses least; a NaN loses most."""
    chosen: dict[tuple[str, Any], Mapping[str, Any]] = {}
    for one in rows:
        key = one["method"], one["options"].get("bits")
        loss = one["loss"] if one["loss"] is not None and np.isfinite(one["loss"]) else np.inf
        if key not in chosen or loss < chosen[key]["loss"]:
            chosen[key] = one
    return sorted(chosen.values(), key=lambda one: (one["method"], one["options"].get("bits") or 0))


def table(study: Mapping[str, Any]) -> str:
    """Return one model's results as Markdown: loss, row sum and error of P V for each method and width."""
    ratio = study["metric"] == "perplexity"
    rows = best(study["rows"])
    lines = [
        f"**{study['name']}**, {study['metric']}, {study['samples']} samples; float32: {study['float']:.4f}. "
        f"Each cell: {'ratio to float32' if ratio else 'change'}; mean row sum; relative error of P V.\n",
        "| method | " + " | ".join(f"{b} bits" for b in BITS) + " | own width |",
        "|---" * (len(BITS) + 2) + "|",
    ]
    for name in dict.fromkeys(one["method"] for one in rows):
        mine = {one["options"].get("bits"): one for one in rows if one["method"] == name}
        cells = [_cell(mine.get(bits), ratio) for bits in (*BITS, None)]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(one: Mapping[str, Any] | None, ratio: bool) -> str:
    if one is None:
        return ""
    if one["loss"] is None or not np.isfinite(one["loss"]):
        return "NaN"
    loss = 1 + one["loss"] if ratio else 0.0 - one["loss"]
    shown = f"{loss:.4f}" if ratio and loss < 100 else f"{loss:.3g}" if ratio else f"{loss:+.4f}"
    forms = ", ".join(f"{k}={v}" for k, v in one["options"].items() if k != "bits")
    extra = [] if one["row_sum"] is None else [f"{one['row_sum']:.3f}"]
    extra += [] if one["output_error"] is None else [f"{one['output_error']:.3f}"]
    return "; ".join([shown, *extra]) + (f" ({forms})" if forms else "")


def tables(results: Mapping[str, Any]) -> str:
    """Return all models' results as Markdown."""
    return "\n\n".join(table(study) for study in results["studies"])


def main() -> None:
    """Measure what is asked for and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="where built models are kept")
    parser.add_argument("--only", action="append", choices=[s.name for s in SUBJECTS])
    parser.add_argument("--methods", default="all")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    names = sorted(METHODS.entries()) if given.methods == "all" else given.methods.split(",")
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"studies": []}
    kept = {study["name"]: study for study in old["studies"]}
    for subject in SUBJECTS:
        if given.only and subject.name not in given.only:
            continue
        found = sweeps(subject, given.models, names, given.threads)
        rows = [row(outcome) for _, outcomes in found for outcome in outcomes]
        before = kept.get(subject.name, {"rows": []})["rows"]
        study = found[0][0]
        kept[subject.name] = {
            "name": subject.name, "metric": subject.metric, "samples": study.samples, "float": study.reference.value,
            "versions": dict(study.versions), "graph": study.graph, "weights": study.weights, "data": study.data_hash,
            "rows": [one for one in before if one["method"] not in names] + rows,
        }  # fmt: skip
        document = {"schema": 1, "command": COMMAND, "studies": [kept[s.name] for s in SUBJECTS if s.name in kept]}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
