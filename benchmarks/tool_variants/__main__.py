"""Tries the variants: see `benchmarks.tool_variants`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import softq
from benchmarks.cpu.works import WORKS
from benchmarks.roundings import Array, greatest_of_draws, nudged
from benchmarks.tool_variants import RESULTS, WAYS, good, line

Level = onnxruntime.GraphOptimizationLevel
ROOT = Path(__file__).parent.parent.parent
SAMPLES = 4

LEVELS = {
    "disabled": Level.ORT_DISABLE_ALL,
    "basic": Level.ORT_ENABLE_BASIC,
    "extended": Level.ORT_ENABLE_EXTENDED,
}


Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Original:
    """A model that the tools change.

    Attributes:
        path: Returns its file, which is built first where there is none.
        feeds: Returns inputs for `calibration`, whose further ones have greater numbers, or for `development`.
    """

    path: Callable[[], Path]
    feeds: Callable[[onnx.ModelProto, str, int], Feeds]


class _Samples(CalibrationDataReader):
    """The calibration data of a model, a few samples at a time."""

    def __init__(self, original: Original, model: onnx.ModelProto) -> None:
        self._feeds = iter([original.feeds(model, "calibration", number) for number in range(SAMPLES)])

    def get_next(self) -> Feeds | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the next feeds."""
        return next(self._feeds, None)


def _committed(name: str) -> Original:
    folder, files = ROOT / "models" / name, {"calibration": "calibration.npz", "development": "data.npz"}

    def feeds(model: onnx.ModelProto, purpose: str, number: int) -> Feeds:
        with np.load(folder / files[purpose]) as data:
            first = number * SAMPLES
            return {value.name: data[value.name][first : first + SAMPLES] for value in model.graph.input}

    return Original(lambda: folder / f"{name}.onnx", feeds)


def _work(name: str) -> Original:
    def feeds(model: onnx.ModelProto, purpose: str, number: int) -> Feeds:
        inputs = WORKS[name].feeds(np.random.default_rng([purpose == "calibration", number]))
        return {value.name: inputs[value.name] for value in model.graph.input}

    return Original(WORKS[name].path, feeds)


COMMITTED = ("mnist_vit", "wikipedia_lm")
ORIGINALS = {
    **{name: _committed(name) for name in COMMITTED},
    **{name: _work(name) for name in ("MiniLM-1x128", "ViT-S-197", "SmolLM2-1x256")},
}


def run(model: onnx.ModelProto | Path, feeds: Feeds, level: Any = Level.ORT_ENABLE_ALL) -> list[Array]:
    """Return what onnxruntime gives at an optimization level."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads, options.log_severity_level = level, 1, 4
    content = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, dict(feeds))]


Tool = Callable[[Original, onnx.ModelProto, Path], onnx.ModelProto]


def _optimized(level: Any) -> Tool:
    def make(original: Original, model: onnx.ModelProto, out: Path) -> onnx.ModelProto:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level, options.optimized_model_filepath = level, str(out)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(out)

    return make


def _slim(original: Original, model: onnx.ModelProto, out: Path) -> onnx.ModelProto:
    import onnxslim  # pyright: ignore[reportMissingImports]

    return onnxslim.slim(model)


def _sim(original: Original, model: onnx.ModelProto, out: Path) -> onnx.ModelProto:
    import onnxsim  # pyright: ignore[reportMissingImports]

    return onnxsim.simplify(model)[0]


def _static(form: QuantFormat) -> Tool:
    def make(original: Original, model: onnx.ModelProto, out: Path) -> onnx.ModelProto:
        quantize_static(model, out, _Samples(original, model), quant_format=form, activation_type=QuantType.QUInt8)
        return onnx.load(out)

    return make


def _dynamic(original: Original, model: onnx.ModelProto, out: Path) -> onnx.ModelProto:
    model.graph.ClearField("value_info")  # Its names are given to other shapes by the quantizer.
    quantize_dynamic(model, out)
    return onnx.load(out)


def _half(original: Original, model: onnx.ModelProto, out: Path) -> onnx.ModelProto:
    from onnxconverter_common import float16  # pyright: ignore[reportMissingImports]

    # It takes the result of a Cast to float32 as float16 and leaves the Cast, which no runtime accepts.
    blocked = [*float16.DEFAULT_OP_BLOCK_LIST, "Cast"]
    return float16.convert_float_to_float16(model, keep_io_types=True, op_block_list=blocked)


HALF = "float16"
"""Only of the small models: onnxconverter-common converts weights one by one in Python."""

VARIANTS: dict[str, Tool] = {
    **{f"onnxruntime {name}": _optimized(level) for name, level in LEVELS.items()},
    "onnxslim": _slim,
    "onnxsim": _sim,
    "QDQ": _static(QuantFormat.QDQ),
    "QOperator": _static(QuantFormat.QOperator),
    "dynamic": _dynamic,
    HALF: _half,
}


def attempt(name: str, variant: str, folder: Path) -> dict[str, Any]:
    """Return what becomes of one variant of a model."""
    original = ORIGINALS[name]
    model = onnx.load(original.path())
    feeds = original.feeds(model, "development", 0)
    row: dict[str, Any] = {"model": name, "variant": variant}
    model = VARIANTS[variant](original, model, folder / "variant.onnx")
    results = [run(model, feeds, level) for level in LEVELS.values()]
    size = max(float(np.abs(x).max()) for x in results[0])
    row["levels"] = _greatest(_distance(a, results[0]) for a in results)
    for what in WAYS:
        try:
            start = time.perf_counter()
            chosen = model if what == "as it is" else softq.convert(model, method="exact", all_sites=True).model
            softq.build(chosen, folder / "built", target="cpu")
            row[f"{what}: build seconds"] = round(time.perf_counter() - start, 1)
            with softq.load(folder / "built") as built:
                found = built(feeds)
            there = [np.asarray(found[value.name]) for value in model.graph.output]
            row[f"{what}: difference"] = float(np.min([_distance(there, x) for x in results]))
        except softq.SoftqError as error:
            row[f"{what}: refused"] = str(error)

    def tolerance(roundings: float) -> float:
        return _greatest((row["levels"], roundings)) + 1e-5 * size

    row["roundings"], row["draws"] = greatest_of_draws(
        lambda seed: _distance(run(*nudged(model, feeds, seed)), results[0]),
        lambda greatest: all(good({**row, "tolerance": tolerance(greatest)}, what) for what in WAYS),
    )
    row["tolerance"] = tolerance(row["roundings"])
    return row


def _distance(a: Sequence[Array], b: Sequence[Array]) -> float:
    return _greatest(
        float(np.abs(x.astype(np.float64) - y.astype(np.float64)).max()) for x, y in zip(a, b, strict=True)
    )


def _greatest(numbers: Iterable[float]) -> float:
    """Return the greatest number; NaN if one is NaN, with which nothing is right."""
    return float(np.max(list(numbers)))


def main() -> int:
    """Try what is asked for; return 1 if a result is out of its tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", choices=[*VARIANTS, []])
    parser.add_argument(
        "--model", nargs="*", choices=ORIGINALS, default=list(ORIGINALS), help="which ones; all of them"
    )
    parser.add_argument("--json", type=Path, default=None if sys.argv[1:] else RESULTS, metavar="FILE")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.model:
        for variant in options.variants or [one for one in VARIANTS if one != HALF or name in COMMITTED]:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(attempt(name, variant, Path(folder)))
            print(line(rows[-1]), flush=True)
    if options.json is not None:
        # What was not tried now stays.
        known = json.loads(options.json.read_text("utf-8"))["rows"] if options.json.exists() else []
        by_variant = {(row["model"], row["variant"]): row for row in (*known, *rows)}
        places = {name: place for place, name in enumerate(ORIGINALS)}
        merged = sorted(by_variant.values(), key=lambda row: places[row["model"]])
        facts = {"command": "python -m benchmarks.tool_variants", "rows": merged}
        options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return int(not all(good(row, what) for row in rows for what in WAYS))


if __name__ == "__main__":
    sys.exit(main())
