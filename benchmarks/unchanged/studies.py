"""What the commands that measure write, on a few images of the vision transformer; times are left out."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.unchanged.interface import command
from benchmarks.unchanged.observe import Observer

_WRITTEN = ("study.json", "outcomes.jsonl", "report.json", "report.model-explorer.json")
_TASK = ("--data", "data.npz", "--metric", "top1-accuracy", "--threads", "1")


def studies(observer: Observer) -> None:
    """Observe check, sweep, sensitivity, plan and report: what they print as JSON, and the files that they leave."""
    from benchmarks.unchanged.corpus import MODELS

    shutil.copyfile(MODELS / "mnist_vit" / "mnist_vit.onnx", "model.onnx")
    shutil.copyfile(MODELS / "mnist_vit" / "calibration.npz", "calibration.npz")
    with np.load(MODELS / "mnist_vit" / "data.npz") as data:
        np.savez("data.npz", **{name: array[:64] for name, array in data.items()})  # pyright: ignore[reportArgumentType]
    bits = "3" if observer.quick else "2-4"

    def see(key: str, *arguments: str) -> None:
        observer.attempt("studies", key, lambda: without_times(command(*arguments)))

    for method in ("deferred-log", "uniform"):
        fitted = ("fitted.onnx", "--method", method, "--calibration", "calibration.npz", "--save-plan", "fitted.json")
        see(f"convert by {method}, fitted", "convert", "model.onnx", *fitted, "--json")
        observer.attempt("studies", f"plan of {method}", partial(_written, Path("fitted.json")))
        see(f"convert by the plan of {method}", "convert", "model.onnx", "again.onnx", "--plan", "fitted.json")
        observer.attempt("studies", f"models of the plan of {method}", lambda: _same("fitted.onnx", "again.onnx"))
        more = [part for name in ("kl", "cosine", "relative-error", "top5-agreement") for part in ("--metric", name)]
        see(f"check {method}", "check", "model.onnx", "fitted.onnx", *_TASK, *more, "--junit", "check.xml", "--json")
        see(f"check {method} as text", "check", "model.onnx", "fitted.onnx", *_TASK, "--max-drop", "0.1%")
    study = ("model.onnx", *_TASK, "--bits", bits, "--methods", "deferred-log,uniform", "--json")
    see("sweep", "sweep", *study, "--out", "sweep", "--junit", "sweep.xml")
    see(
        "sweep, fitted", "sweep", *study, "--out", "fitted", "--calibration", "calibration.npz", "--granularity", "head"
    )
    see("sensitivity", "sensitivity", *study, "--out", "sites", "--top", "2")
    see("plan", "plan", *study, "--out", "plan.json", "--max-drop", "5%")
    see("report", "report", "sweep", "sites", "--plan", "plan.json", "--json")
    for folder in ("sweep", "fitted", "sites"):
        for name in _WRITTEN:
            observer.attempt("studies", f"{folder}/{name}", partial(_written, Path(folder) / name))
    for name in ("plan.json", "plan.measured.json"):
        observer.attempt("studies", name, partial(_written, Path(name)))


def _written(path: Path) -> str:
    return without_times(path.read_text(encoding="utf-8"))


def _same(one: str, other: str) -> str:
    return "equal" if Path(one).read_bytes() == Path(other).read_bytes() else "different"


def without_times(text: str) -> str:
    """Return JSON, or lines of it, with null for each number of seconds; any other text as it is."""
    lines = text.splitlines()
    end = [line for line in lines[-1:] if line.startswith("[exit code")]
    body = "\n".join(lines[: -1 if end else None])
    try:
        values = [json.loads(body)]
    except ValueError:
        try:
            values = [json.loads(line) for line in body.splitlines()]
        except ValueError:
            return text
    return "\n".join([*(json.dumps(_timeless(value), indent=1) for value in values), *end])


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: None if key == "seconds" else _timeless(one) for key, one in value.items()}
    return [_timeless(one) for one in value] if isinstance(value, list) else value
