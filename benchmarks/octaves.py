"""deferred-log-octaves beside deferred-log's several passes, for 8-bit integer scores; and what its steps grow by.

    python -m benchmarks.octaves [--models DIR] [--search]

The relative error of P V on rows of each attention, the root of its mean square, geometric mean over the sites of a
model. Scores are integers in [-127, 127] whose step is the greatest score of the site on calibration data / 127; the
programs are run as they are, by the interpreter. Results go to benchmarks/octaves.json, from which docs/accuracy.md has
a table; data are for development. `--search` prints what the growing steps of each width are found to be on calibration
data, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.splits import files_of
from softq.calibration import Sampling, collect_rows, exact_weights, input_specs, without_masked_rows
from softq.data import open_data
from softq.graph.facts import Assumed
from softq.methods import METHODS, Sample
from softq.methods._steps import PER_OCTAVE, Code, Growth
from softq.methods.deferred_log_octaves import growing_steps
from softq.modelfile import load
from softq.passes.locate import locate
from softq.rowprog import DType, run
from softq.rowprog.library import LOG2_E

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "octaves.json"
COMMAND = "python -m benchmarks.octaves"
MODELS = {
    "MNIST ViT": "mnist_vit", "Wikipedia language model": "wikipedia_lm", "all-MiniLM-L6-v2": "minilm",
    "SmolLM2-135M": "smollm2",
}  # fmt: skip
SAMPLES, MAPS = 8, 2
GREATEST = 127
MASKED = -1e4
"""Scores down to here are masks that were added."""

BITS = (3, 4, 5, 6, 8)
FORMS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "`deferred-log`": ("deferred-log", {}),
    "`deferred-log-octaves`": ("deferred-log-octaves", {}),
    "`deferred-log`, equal steps": ("deferred-log", {"steps": "equal"}),
    "`deferred-log-octaves`, equal steps": ("deferred-log-octaves", {"r": None}),
}
"""What is compared: a method and settings; None for what deferred-log's equal steps have at that width."""

BEGINNINGS = {
    2: (1.3, 0.8, 0.2), 3: (6.3, 0.54, 0.49), 4: (22.0, 0.38, 0.28), 5: (100.0, 0.2, 0.5), 6: (350.0, 0.1, 1.0),
    7: (1100.0, 0.06, 2.0),
}  # fmt: skip
"""Where the search begins: r, first and shift."""

TRIED, SLOWER = 100, 20
Array = NDArray[np.float64]
Weigh = Callable[[NDArray[Any], NDArray[Any], float], tuple[Array, Array]]
"""Returns weights and their normalizers of scores, of which a mask says what takes part, and their step."""


@dataclass(frozen=True)
class Rows:
    """Some rows of one head.

    Attributes:
        scores: i8 [R, N], 0 where masked.
        valid: bool [R, N].
        values: V, [N, D].
        exact: P V of the float scores, [R, D].
    """

    scores: NDArray[np.int8]
    valid: NDArray[np.bool_]
    values: Array
    exact: Array

    def error(self, weights: Array, normalizer: Array) -> float:
        """Return the squared error of P V relative to P V."""
        found = (weights @ self.values) / normalizer
        return float(np.sum((found - self.exact) ** 2) / np.sum(self.exact**2))


@dataclass(frozen=True)
class Site:
    """The rows of a softmax, and the step of its scores."""

    step: float
    rows: Sequence[Rows]

    def error(self, weigh: Weigh) -> float:
        """Return the root of the mean squared error of P V for weights and their normalizers."""
        errors: list[float] = []
        for length in {rows.valid.shape[-1] for rows in self.rows}:
            alike = [rows for rows in self.rows if rows.valid.shape[-1] == length]
            every = [np.concatenate(parts) for parts in zip(*((r.scores, r.valid) for r in alike), strict=True)]
            ends = np.cumsum([len(rows.valid) for rows in alike])[:-1]
            weights, normalizers = (np.split(found, ends) for found in weigh(every[0], every[1], self.step))
            errors += [rows.error(*found) for rows, *found in zip(alike, weights, normalizers, strict=True)]
        return math.sqrt(np.mean(errors))


def sites_of(model: Path, calibration: Path, data: Path) -> Iterator[Site]:
    """Yield rows of the attentions of a model on data, with the steps that they have on calibration data."""
    loaded = load(model)
    wanted = [site.id for site in locate(loaded) if site.takes_method]
    specs = input_specs(loaded)

    def collect(path: Path) -> Mapping[str, Any]:
        with np.load(path) as arrays:
            given = {spec.name: arrays[spec.name][:SAMPLES] for spec in specs}
        opened = open_data([given], specs, reject_nan=True)
        return collect_rows(loaded, wanted, opened, False, Assumed(), sampling=Sampling(maps=MAPS))

    fitted_on, found = collect(calibration), collect(data)
    for site in wanted:
        greatest = max(np.abs(s.scores[s.scores > MASKED]).max() for s in fitted_on[site])
        step = float(greatest) / GREATEST
        samples = [without_masked_rows(sample) for sample in found[site]]
        yield Site(step, [_quantize(sample, step) for sample in samples if len(sample.scores)])


def _quantize(sample: Sample, step: float) -> Rows:
    scores, values = sample.scores, sample.values
    assert values is not None, "each attention multiplies by V"
    valid = scores > MASKED
    codes = np.clip(np.rint(np.where(valid, scores, 0) / step), -GREATEST, GREATEST).astype(np.int8)
    return Rows(codes, valid, values.astype(np.float64), exact_weights(scores) @ values.astype(np.float64))


def mean_error(sites: Sequence[Site], weigh: Weigh) -> float:
    """Return the geometric mean of the error of P V over sites."""
    return math.exp(np.mean([math.log(site.error(weigh)) for site in sites]))


def weigh_by(method: str, settings: Mapping[str, object]) -> Weigh:
    """Return what runs a method's program on rows of integers."""
    chosen = METHODS.get(method)

    def weigh(scores: NDArray[Any], valid: NDArray[Any], step: float) -> tuple[Array, Array]:
        options = chosen.resolve(chosen.configure({**settings, "step": step}), False)
        out = run(chosen.program(options, scores=DType.I8, masked=True), scores, valid=valid)
        return out["weights"].astype(np.float64), out["normalizer"].astype(np.float64)

    return weigh


def measure(sites: Sequence[Site]) -> dict[str, dict[str, float]]:
    """Return the error of each form at each width."""
    found: dict[str, dict[str, float]] = {}
    several = METHODS.get("deferred-log")
    for name, (method, settings) in FORMS.items():
        found[name] = {}
        for bits in BITS:
            equal = several.resolve(several.configure({"bits": bits, "steps": "equal"}), False).to_json()["r"]
            given = {key: equal if value is None else value for key, value in settings.items()}
            found[name][str(bits)] = mean_error(sites, weigh_by(method, {"bits": bits, **given}))
    return found


def weigh_with(code: Code) -> Weigh:
    """Return what weighs rows by a code in the way of the method, but for what its shifts cut off."""
    codes, weights = np.frombuffer(code.of_bytes(), np.uint8), np.asarray(code.weights)
    start = math.ceil(code.thresholds[0] * PER_OCTAVE) // 2

    def weigh(scores: NDArray[Any], valid: NDArray[Any], step: float) -> tuple[Array, Array]:
        places = np.rint(scores * (step * LOG2_E * PER_OCTAVE)) - start
        first = np.take_along_axis(scores, np.argmax(valid, axis=-1)[:, None], axis=-1)
        places -= np.rint(first * (step * LOG2_E * PER_OCTAVE))
        octaves = np.maximum.accumulate(np.where(valid, np.ceil(places / PER_OCTAVE), -1e9), axis=-1)
        below = np.clip(octaves * PER_OCTAVE - places, 0, 255).astype(np.uint8)
        shifted = np.where(valid, weights[codes[below]] * 2.0 ** (octaves - octaves[:, -1:]), 0)
        return shifted, shifted.sum(axis=-1, keepdims=True)

    return weigh


def search(bits: int, models: Sequence[Sequence[Site]]) -> tuple[dict[str, float], float]:
    """Return r, first and shift with the least error, geometric over models, rounded to three digits; and the error."""
    rng = np.random.default_rng(bits)

    def error(numbers: Sequence[float]) -> float:
        r, first, shift = numbers
        weigh = weigh_with(growing_steps(2**bits - 1, Growth(r, first, shift, 0.0)))
        return math.exp(np.mean([math.log(mean_error(sites, weigh)) for sites in models]))

    best, spread = BEGINNINGS[bits], 0.4
    least = error(best)
    for tried in range(TRIED):
        r, first, shift = (float(f"{number * math.exp(rng.normal() * spread):.3g}") for number in best)
        numbers = (r, min(first, 1.0), min(shift, 4.0))
        found = error(numbers)
        if found < least:
            best, least = numbers, found
        spread *= 0.6 if tried % SLOWER == SLOWER - 1 else 1
    return dict(zip(("r", "first", "shift"), best, strict=True)), least


def document(facts: Mapping[str, Any]) -> str:
    """Return the table of docs/accuracy.md."""
    lines = ["| model | scores of 8 bits | " + " | ".join(f"{bits} bits" for bits in BITS) + " |"]
    lines.append("|---" * (2 + len(BITS)) + "|")
    for model, found in facts["models"].items():
        for name, errors in found.items():
            cells = [f"{errors[str(bits)]:.4f}" for bits in BITS]
            lines.append(f"| {model} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Search, or measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("SOFTQ_CACHE", Path.home() / ".cache" / "softq"))
    parser.add_argument("--models", type=Path, default=cache / "models", help="where built models are kept")
    parser.add_argument("--search", action="store_true", help="search the growing steps, measure nothing")
    given = parser.parse_args()
    places = {
        name: (ROOT / "models" / key if (ROOT / "models" / key).is_dir() else given.models / key, key)
        for name, key in MODELS.items()
    }

    def rows(folder: Path, key: str, part: str) -> list[Site]:
        model = folder / "model.onnx" if folder.parent == given.models else folder / f"{key}.onnx"
        return list(sites_of(model, *(folder / files_of(key, each)[-1] for each in ("calibration", part))))

    if given.search:
        models = [rows(*place, "calibration") for place in places.values()]
        for bits in BEGINNINGS:
            print(bits, *search(bits, models), flush=True)
        return
    found: dict[str, Any] = {}
    for name, place in places.items():
        found[name] = measure(rows(*place, "development"))
        print(name, json.dumps(found[name]), flush=True)
        facts = {"schema": 1, "command": COMMAND, "models": found}
        RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
