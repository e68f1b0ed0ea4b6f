"""What a width of weights and a sum per head are worth in attentions on integers (`convert --qdq --calibration`).

    python -m benchmarks.qdq_choices

The squared error of P V of each head on development data, with what is usual (weights of 8 bits, divided by their own
sum), with fewer bits, with the sum of exact weights, and with what the calibration data choose. Results go to
benchmarks/qdq_choices.json, from which docs/quantizers.md has a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.cpu.machine import description
from benchmarks.qdq import BITS, MODELS, ROOT, Whole
from softq.calibration import Sampling, collect_rows, fit, input_specs
from softq.calibration.errors import Errors, by_head
from softq.data import open_data
from softq.graph.facts import NOTHING
from softq.methods import METHODS, Sample
from softq.modelfile import as_model
from softq.passes.locate import locate

RESULTS = ROOT / "benchmarks" / "qdq_choices.json"
COMMAND = "python -m benchmarks.qdq_choices"
SAMPLES, MAPS = 32, 16
PLACES = {"MNIST ViT": MODELS["vit"], "all-MiniLM-L6-v2": MODELS["minilm"]}
PLACES["Wikipedia language model"] = replace(
    MODELS["vit"], folder=ROOT / "models/wikipedia_lm", file="wikipedia_lm.onnx"
)
USUAL = {"weight_bits": 8.0, "exact_sum": 0.0}
FIXED: Mapping[str, Mapping[str, float]] = {
    "8 bits, their own sum": USUAL,
    "7 bits": {**USUAL, "weight_bits": 7.0},
    "6 bits": {**USUAL, "weight_bits": 6.0},
    "8 bits, exact sum": {**USUAL, "exact_sum": 1.0},
}


def measure(place: Whole) -> dict[str, Any]:
    """Return the relative error of P V, its square the mean over heads, and in how many heads each is the best."""
    method = METHODS.get("deferred-log")
    settings = {"bits": BITS, "peak": "full", "weight_bits": "head", "exact_sum": "head"}
    options = method.resolve(method.configure(settings), False)
    single = replace(options, weight_bits="site", exact_sum="site")
    calibration, development = (list(_rows(place, *part)) for part in (("calibration.npz", 4), (place.data, MAPS)))
    errors: dict[str, list[float]] = {name: [] for name in (*FIXED, "chosen")}
    changed = 0
    for fitted_on, judged_on in zip(calibration, development, strict=True):
        found = fit(method, options, fitted_on)
        for head, samples in enumerate(by_head(judged_on)):
            error = Errors(method, single, samples)
            chosen = {name: float(np.atleast_1d(numbers)[head]) for name, numbers in found.items()}
            changed += chosen != USUAL
            for name, numbers in {**FIXED, "chosen": chosen}.items():
                errors[name].append(float(error(numbers).mean()))
    best = np.argmin([errors[name] for name in FIXED], axis=0)
    return {
        "heads": len(errors["chosen"]), "changed": changed,
        "errors": {name: float(np.sqrt(np.mean(each))) for name, each in errors.items()},
        "best": {name: int(np.sum(best == number)) for number, name in enumerate(FIXED)},
    }  # fmt: skip


def _rows(place: Whole, file: str, maps: int) -> Iterator[Sequence[Sample]]:
    """Yield rows of each softmax, in the order of the graph."""
    path = place.folder / place.file
    model = as_model(path)
    sites = [site.id for site in locate(model, logarithms=True, methods="deferred-log") if site.takes_method]
    specs = input_specs(model)
    with np.load(place.folder / file) as arrays:
        given = {spec.name: arrays[spec.name][:SAMPLES] for spec in specs}
    data = open_data([given], specs, reject_nan=True)
    found = collect_rows(
        as_model(path), sites, data, True, NOTHING, sampling=Sampling(maps=maps), batch=4, threads=1
    )  # fmt: skip
    yield from (found[site] for site in sites)


def document(facts: Mapping[str, Any]) -> str:
    """Return the table of docs/quantizers.md."""
    head = ["model", "heads", *FIXED, "chosen by calibration data", "heads whose choice is not usual"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in facts["models"].items():
        cells = [f"{row['errors'][key]:.4f} ({row['best'][key]})" for key in FIXED]
        cells += [f"{row['errors']['chosen']:.4f}", str(row["changed"])]
        lines.append("| " + " | ".join([name, str(row["heads"]), *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    models: dict[str, Any] = {}
    for name, place in PLACES.items():
        models[name] = measure(place)
        print(name, json.dumps(models[name]), flush=True)
    facts = {"schema": 1, "command": COMMAND, "machine": description(), "models": models}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
