"""The accuracy figures of the README: real models, one command.

    python -m benchmarks.figures [--models DIR] [--only STUDY]

Builds the models that are not committed (`models/`), converts each at each setting, measures the float model and the
converted one on the same development data (`models.splits`), and writes benchmarks/results.json: versions, hashes, and
what each window or sample contributed. Options that are fitted are fitted on calibration data. What was measured
before with the same program, parameters, model and data is taken from the cache beside the models.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import softq
from models.splits import file_of, files_of
from softq.data import open_data
from softq.methods import METHODS
from softq.metrics import find_metric, paired_ratio_interval
from softq.modelfile import graph_hash, load, save, weights_fingerprint
from softq.rowprog import to_text
from softq.runner import OnnxRunner

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.json"
COMMAND = "make figures"

Settings = Mapping[str, int | float | str]


@dataclass(frozen=True)
class Study:
    """One model with one metric on one or more data sets.

    Attributes:
        name: What the tables call it.
        builder: Module that builds the model, or None for a committed one.
        folder: Folder of the model, below the root or the models' cache.
        model: Name of the model's file.
        metric: Name of the metric.
        data: Data sets by the name that the tables use.
        settings: Methods with their options.
    """

    name: str
    builder: str | None
    folder: str
    model: str
    metric: str
    data: Mapping[str, str]
    settings: Sequence[tuple[str, Settings]]


DEFERRED: tuple[tuple[str, Settings], ...] = (
    ("deferred-log", {"bits": 4, "r": 1.0}),
    ("deferred-log", {"bits": 4, "steps": "equal"}),
    ("deferred-log", {"bits": 4}),
    ("deferred-log", {"bits": 3, "r": 0.75}),
    ("deferred-log", {"bits": 3}),
    ("deferred-log", {"bits": 2, "r": 0.5}),
    ("deferred-log", {"bits": 2}),
)
"""Where r is no number it is fitted, one a site, on the calibration data."""

OTHERS: tuple[tuple[str, Settings], ...] = (("uniform", {"bits": 8}), ("log2", {"bits": 4}))

STUDIES = (
    Study("MNIST ViT", None, "models/mnist_vit", "mnist_vit.onnx", "top1-accuracy",
          {"2,000 images": file_of("mnist_vit", "development")},
          (*DEFERRED, *OTHERS)),
    Study("Wikipedia language model", None, "models/wikipedia_lm", "wikipedia_lm.onnx", "perplexity",
          {"64 windows": file_of("wikipedia_lm", "development")}, (*DEFERRED, *OTHERS)),
    Study("all-MiniLM-L6-v2", "models.minilm", "minilm", "model.onnx", "spearman",
          {"Lee50": file_of("minilm", "development")}, (*DEFERRED, *OTHERS)),
    Study("SmolLM2-135M", "models.smollm2", "smollm2", "model.onnx", "perplexity",
          dict(zip(("4 windows", "32 further windows"), files_of("smollm2", "development"), strict=True)),
          (*DEFERRED, *OTHERS)),
)  # fmt: skip


def program_hash(method: str, settings: Settings) -> str:
    """Return the hash of the program that these settings give with calibration data: others are stale."""
    chosen = METHODS.get(method)
    options = chosen.resolve(chosen.configure(settings), True)
    return hashlib.sha256(to_text(chosen.program(options)).encode()).hexdigest()


def measure(study: Study, models: Path) -> dict[str, object]:
    """Return the results of one study."""
    folder = models / study.folder if study.builder else ROOT / study.folder
    if study.builder:
        subprocess.run([sys.executable, "-m", study.builder, str(folder)], check=True, cwd=ROOT)
    path = folder / study.model
    source = load(path)
    identity = graph_hash(source) + weights_fingerprint(source)
    cache = models / "measured"
    rows: list[dict[str, object]] = []
    fitted_on = str(folder / file_of(folder.name, "calibration"))
    reference = {name: _values(study, path, folder / data, cache, identity) for name, data in study.data.items()}
    for method, settings in study.settings:
        result = softq.convert(path, method=method, settings=settings, calibration=fitted_on)
        key = identity + program_hash(method, settings) + result.plan.to_text()
        # Beside its weights, so that it refers to them instead of copying them.
        converted = path.with_name(f"{path.stem}.figures.onnx")
        save(result.model, converted)
        try:
            found = {name: _values(study, converted, folder / data, cache, key) for name, data in study.data.items()}
        finally:
            converted.unlink()
        for name in study.data:
            rows.append({
                "data": name, "method": method, "settings": dict(settings), "program": program_hash(method, settings),
                "sites": len(result.plan.sites), "fitted": bool(result.plan.sites[0].fitted),
                **_compared(study, reference[name], found[name]),
            })  # fmt: skip
            value, change = rows[-1]["value"], rows[-1]["change"]
            print(f"{study.name}, {name}: {method} {dict(settings)}: {value:.5g} ({change:.5g})", flush=True)
    floats = [{"data": name, "value": one["value"], "samples": one["samples"]} for name, one in reference.items()]
    return {"name": study.name, "metric": study.metric, "model": identity[:64], "float": floats, "rows": rows}


def _values(study: Study, model: Path, data: Path, cache: Path, identity: str) -> dict[str, object]:
    """Return the metric's value and what each sample contributed."""
    key = hashlib.sha256(f"{identity}|{study.metric}|{_digest(data)}".encode()).hexdigest()
    stored = cache / f"{key}.json"
    if stored.exists():
        return json.loads(stored.read_text())
    runner = OnnxRunner.open(model, threads=int(os.environ.get("SOFTQ_THREADS", "0")) or None)
    dataset = open_data(str(data), runner.inputs)
    output, label = runner.outputs[0].name, next(iter(dataset.labels))
    meter = find_metric(study.metric).start(output, label)
    for batch in dataset.batches(1 if study.metric == "perplexity" else 50):
        outputs = runner(batch.inputs, [output])
        meter.update(outputs, outputs, batch.labels)
    done = meter.result()
    samples = None
    if done.samples is not None and study.metric == "perplexity":
        samples = np.stack([done.samples.candidate, done.samples.weight], axis=1).tolist()
    value = {"value": done.candidate, "samples": samples}
    cache.mkdir(parents=True, exist_ok=True)
    stored.with_suffix(".part").write_text(json.dumps(value))
    stored.with_suffix(".part").rename(stored)
    return value


def _digest(data: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(data.glob("*.npz")) if data.is_dir() else [data]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _compared(study: Study, reference: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    ours, theirs = float(str(reference["value"])), float(str(found["value"]))
    if study.metric != "perplexity":
        return {"value": theirs, "change": theirs - ours}
    windows, others = np.array(reference["samples"]), np.array(found["samples"])
    interval = paired_ratio_interval(windows[:, 0], others[:, 0], windows[:, 1])
    return {
        "value": theirs,
        "change": theirs / ours,
        "low": interval.low,
        "high": interval.high,
        "samples": found["samples"],
    }


def tables(results: Mapping[str, object]) -> str:
    """Return the results as Markdown, one table a study."""
    parts: list[str] = []
    studies = results["studies"]
    assert isinstance(studies, list)
    for study in studies:
        ratio = study["metric"] == "perplexity"
        floats = ", ".join(f"{one['value']:.4g} ({one['data']})" for one in study["float"])
        parts.append(f"**{study['name']}**, {study['metric']}; float32: {floats}\n")
        change = "ratio to float32 (95 % interval)" if ratio else "change"
        parts.append(f"| data | method | bits | {study['metric']} | {change} |")
        parts.append("|---|---|---|---|---|")
        for row in study["rows"]:
            settings = {k: v for k, v in row["settings"].items() if k != "bits"}
            extra = "".join(f", {k} = {v}" for k, v in settings.items()) or ", fitted" * row["fitted"]
            change = (
                f"{row['change']:.4f} ({row['low']:.4f} to {row['high']:.4f})" if ratio else f"{row['change']:+.4f}"
            )
            cells = (row["data"], row["method"] + extra, str(row["settings"]["bits"]), f"{row['value']:.4f}", change)
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts).rstrip()


def main() -> None:
    """Measure what is asked for and write the results."""
    parser = argparse.ArgumentParser(description="Measure the figures of the README.")
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="where built models are kept")
    parser.add_argument("--only", action="append", choices=[s.name for s in STUDIES], help="measure this study alone")
    arguments = parser.parse_args()
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"studies": []}
    kept = {study["name"]: study for study in old["studies"]}
    for study in STUDIES:
        if not arguments.only or study.name in arguments.only:
            kept[study.name] = measure(study, arguments.models)
            modules = {"numpy": np, "onnx": onnx, "onnxruntime": onnxruntime, "softq": softq}
            versions = {name: module.__version__ for name, module in modules.items()}
            ordered = [kept[s.name] for s in STUDIES if s.name in kept]
            document = {"schema": 1, "command": COMMAND, "versions": versions, "studies": ordered}
            RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
