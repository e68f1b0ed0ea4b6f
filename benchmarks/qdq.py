"""Attention on integers by standard operators (`convert --qdq`) beside onnxruntime's own static quantization.

    python -m benchmarks.qdq [errors] [times] [models] [--model NAME ...]

errors: relative error of P V in onnxruntime, of N keys and scores of a standard deviation, with V around a common mean
(256 queries, 64 numbers a head; three draws; calibrated on four more). times: an attention of 12 heads of 64, one
thread, runs in turns. models: the metric of whole models and their time. Every model that is quantized here is run by
onnxruntime with its default optimizations. Results go to benchmarks/qdq.json, from which docs/quantizers.md has its
tables.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

import softq
from benchmarks.cpu.machine import description
from benchmarks.onnxruntime import ATTENTION, HEADS, WIDTH, open_session, proto_of
from softq.modelfile import save
from softq.onnxruntime import quantize_overrides

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "qdq.json"
COMMAND = "python -m benchmarks.qdq"
BITS = 4
PLACES = ((256, 3), (256, 1), (1024, 1), (4096, 1), (4096, 3))
ASKED = (0.041, 0.025, 0.023, 0.018, 0.085)
QUERIES, DRAWS, FITTED = 256, 3, 4
LENGTHS = (512, 2048)
Feeds = Mapping[str, NDArray[Any]]

PLAIN, NO_SOFTMAX, FLOAT = "`quantize_static`", "`quantize_static`, softmax excluded", "float"
OVERRIDES, QDQ = "`deferred-log`, `quantize_overrides`", "`deferred-log`, `--qdq`"
FITTED_QDQ = "`deferred-log`, `--qdq --calibration`"
EXACT = "`exact`, `--qdq`"
PRODUCTS = ["Conv", "Gemm", "MatMul"]
"""What is quantized but for the softmax. Of all that onnxruntime would take MiniLM comes out with a cosine of .36."""
REST = ", `quantize_static` for the rest"


class _Reader(CalibrationDataReader):
    """Calibration data for onnxruntime."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feeds | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the next feeds."""
        return next(self._feeds, None)


def quantize(model: Path, out: Path, feeds: Sequence[Feeds], **options: Any) -> Path:
    """Write what onnxruntime's static quantization makes of a model: u8 activations, s8 weights by columns."""
    logging.disable(logging.WARNING)
    quantize_static(
        model, out, _Reader(feeds), activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True,
        **options,
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    return out


def variants(
    folder: Path, model: Path, data: Mapping[str, Sequence[Feeds]], *, rest: bool
) -> Iterator[tuple[str, Path]]:
    """Yield a model as it is, as onnxruntime quantizes it, and with softq's attentions.

    Args:
        folder: Where files are written.
        model: The model.
        data: Feeds by purpose: `calibration`.
        rest: Whether there is more than an attention, which onnxruntime quantizes in softq's models too.
    """
    yield FLOAT, model
    chosen = {"op_types_to_quantize": PRODUCTS}
    with_softmax = {"op_types_to_quantize": [*PRODUCTS, "Softmax"]} if rest else {}
    yield PLAIN, quantize(model, folder / "plain.onnx", data["calibration"], **with_softmax)
    yield NO_SOFTMAX, quantize(model, folder / "no-softmax.onnx", data["calibration"], **chosen)
    made = {
        QDQ: softq.convert(model, bits=BITS, qdq=True),
        FITTED_QDQ: softq.convert(model, bits=BITS, qdq=True, calibration=data["calibration"]),
        EXACT: softq.convert(model, method="exact", qdq=True),
        OVERRIDES: softq.convert(model, settings={"bits": BITS, "weight_bits": 8, "peak": "full"}),
    }
    for name, converted in made.items():
        assert not converted.warnings, converted.warnings
        written = folder / f"{len(name)}.onnx"
        save(converted.model, written, source=model)
        if rest and name in (QDQ, EXACT):
            yield name, written
        if rest or name == OVERRIDES:
            out = folder / f"{len(name)}-quantized.onnx"
            quantize(written, out, data["calibration"], **quantize_overrides(written), **chosen)
            yield name if name == OVERRIDES else name + REST, out
        else:
            yield name, written


def errors(folder: Path) -> list[dict[str, Any]]:
    """Return the relative error of P V of each variant at each place."""
    rows: list[dict[str, Any]] = []
    for (keys, deviation), asked in zip(PLACES, ASKED, strict=True):
        text = f"""(float[1,{QUERIES},{WIDTH}] q, float[1,{WIDTH},{keys}] k, float[1,{keys},{WIDTH}] v)
            => (float[1,{QUERIES},{WIDTH}] out) {{ factor = Constant<value = float {{{deviation / WIDTH**0.5}}}>()
            s = MatMul(q, k) scaled = Mul(s, factor) p = Softmax<axis = -1>(scaled) out = MatMul(p, v) }}"""
        place = folder / f"{keys}-{deviation}"
        place.mkdir()
        save(proto_of(text), place / "model.onnx")
        draws = [_draw(np.random.default_rng([keys, deviation, number]), keys) for number in range(DRAWS + FITTED)]
        found: dict[str, float] = {}
        for name, file in variants(place, place / "model.onnx", {"calibration": draws[DRAWS:]}, rest=False):
            run = open_session(file, None, 1).run
            each = [
                _relative(np.asarray(run(None, dict(feeds))[0]), _exact(feeds, deviation)) for feeds in draws[:DRAWS]
            ]
            found[name] = float(np.mean(each))
        rows.append({"keys": keys, "deviation": deviation, "asked": asked, "errors": found})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _draw(rng: np.random.Generator, keys: int) -> Feeds:
    found = {
        "q": rng.normal(size=(1, QUERIES, WIDTH)), "k": rng.normal(size=(1, WIDTH, keys)),
        "v": rng.normal(size=(1, keys, WIDTH)) + rng.normal(size=(1, 1, WIDTH)),
    }  # fmt: skip
    return {name: array.astype(np.float32) for name, array in found.items()}


def _exact(feeds: Feeds, deviation: float) -> NDArray[np.float64]:
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = q @ k * (deviation / WIDTH**0.5)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ v / weights.sum(axis=-1, keepdims=True)


def _relative(found: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def in_turns(files: Mapping[str, Path], feeds: Feeds, rounds: int) -> dict[str, float]:
    """Return milliseconds of each: the median of one thread's processor time, runs in turns."""
    calls = {name: partial(open_session(file, None, 1).run, None, dict(feeds)) for name, file in files.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 2):
        for name, call in calls.items():
            begin = time.thread_time()
            call()
            if number >= 2:
                times[name].append(time.thread_time() - begin)
    return {name: statistics.median(found) * 1e3 for name, found in times.items()}


def times(folder: Path) -> dict[str, dict[str, float]]:
    """Return the milliseconds of an attention of each length."""
    found: dict[str, dict[str, float]] = {}
    for length in LENGTHS:
        place = folder / f"length-{length}"
        place.mkdir()
        save(proto_of(ATTENTION), place / "model.onnx")
        rng = np.random.default_rng(0)
        feeds = {name: rng.normal(size=(1, length, HEADS * WIDTH)).astype(np.float32) for name in "qkv"}
        files = dict(variants(place, place / "model.onnx", {"calibration": [feeds]}, rest=False))
        found[str(length)] = in_turns(files, feeds, max(5, 20 * 512 // length))
        print(length, json.dumps(found[str(length)]), flush=True)
    return found


@dataclass(frozen=True)
class Whole:
    """A whole model.

    Attributes:
        title: What the table calls it.
        folder: Its folder, with calibration.npz.
        file: Its file there.
        data: The file of the data that the metric is of.
        metric: The metric.
        samples: Samples that it is of.
        calibrated: Samples that onnxruntime and softq are calibrated on.
        batch: Samples a run.
        rounds: Runs that are timed.
    """

    title: str
    folder: Path
    file: str
    data: str
    metric: str
    samples: int
    calibrated: int
    batch: int
    rounds: int


_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "softq" / "models"
MODELS = {
    "vit": Whole(
        "MNIST ViT", ROOT / "models/mnist_vit", "mnist_vit.onnx", "data.npz", "top1-accuracy", 2000, 64, 16, 20
    ),
    "minilm": Whole("all-MiniLM-L6-v2", _CACHE / "minilm", "model.onnx", "data.npz", "cosine", 32, 8, 4, 12),
    "smollm2": Whole("SmolLM2-135M", _CACHE / "smollm2", "model.onnx", "data_more.npz", "perplexity", 4, 2, 1, 3),
    "vit-small": Whole("ViT-S, random weights", _CACHE / "vit_small", "model.onnx", "", "relative-error", 8, 4, 4, 5),
}


def whole(folder: Path, name: str) -> dict[str, Any]:
    """Return the metric and the milliseconds of each variant of a model."""
    given = MODELS[name]
    place = folder / name
    place.mkdir()
    model = given.folder / given.file
    names = [value.name for value in open_session(model, None, 1).get_inputs()]
    inputs = {key: array for key, array in _arrays(given, "calibration.npz").items() if key in names}
    parts = range(0, given.calibrated, given.batch)
    calibration = [{key: array[at : at + given.batch] for key, array in inputs.items()} for at in parts]
    whole_data = _arrays(given, given.data)
    data = [
        {key: array[at : at + given.batch] for key, array in whole_data.items()}
        for at in range(0, given.samples, given.batch)
    ]
    files = dict(variants(place, model, {"calibration": calibration}, rest=True))
    metrics: dict[str, float] = {}
    for key, file in files.items():
        report = softq.check(model, file, data, metrics=[given.metric], batch=given.batch, threads=1)
        metrics[key] = report.metrics[0].candidate
        print(name, key, metrics[key], flush=True)
    feeds = {key: data[0][key] for key in inputs}
    milliseconds = in_turns(files, feeds, given.rounds)
    print(name, json.dumps(milliseconds), flush=True)
    return {
        "samples": given.samples, "batch": given.batch, "metric": given.metric, "metrics": metrics,
        "milliseconds": milliseconds,
    }  # fmt: skip


def _arrays(given: Whole, file: str) -> dict[str, NDArray[Any]]:
    """Return data of a model; random images for the one with random weights, which has none."""
    if given.data:
        with np.load(given.folder / file) as arrays:
            return {key: arrays[key] for key in arrays.files}
    rng = np.random.default_rng(len(file))
    return {"images": rng.normal(size=(given.samples, 3, 224, 224)).astype(np.float32)}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("parts", nargs="*", choices=("errors", "times", "models", []))
    given.add_argument("--model", action="append", choices=tuple(MODELS))
    options = given.parse_args()
    facts: dict[str, Any] = {"schema": 1, "models": {}}
    if RESULTS.exists():
        facts = json.loads(RESULTS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in options.parts or ("errors", "times", "models"):
            if part == "models":
                facts["models"] |= {key: whole(folder, key) for key in options.model or MODELS}
            else:
                facts[part] = {"errors": errors, "times": times}[part](folder)
    facts |= {"command": COMMAND, "machine": description()}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
