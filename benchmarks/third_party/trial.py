"""One model's trial, in a process of its own: `python -m benchmarks.third_party.trial NAME OUT`.

OUT is written after every stage: of a crash or of the time limit what came before is left, and `stage` says where.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import softq
from benchmarks.cpu.timing import take_turns
from benchmarks.roundings import greatest_of_draws, nudged
from benchmarks.third_party.models import MODELS, Draw, Model
from benchmarks.third_party.packages import extract
from softq.errors import SoftqError

FLOOR = 1e-5
"""Always allowed, a part of the greatest magnitude: some hundred roundings of float32, as deep models have."""

SECONDS = 4.0
"""About how long a comparison of times goes on."""

Arrays = Mapping[str, np.ndarray]


@dataclass
class Build:
    """How a build went.

    Attributes:
        status: "right", "wrong" or "refused".
        reason: Why it is not right, or not as it is, in the words of softq or with the numbers.
        fixed: Whether the dimensions of the inputs had to be given.
        seconds: What `softq.build` took.
        bytes: Size of the artifact.
        error: Greatest difference from onnxruntime without optimizations, over an output's greatest magnitude.
        tolerance: The same of onnxruntime with all its optimizations, or for weights and inputs off by a rounding.
        time: Seconds of a run, median.
        rival: Seconds of a run of onnxruntime, median.
    """

    status: str
    reason: str = ""
    fixed: bool = False
    seconds: float | None = None
    bytes: int | None = None
    error: float | None = None
    tolerance: float | None = None
    time: float | None = None
    rival: float | None = None


def draw(inputs: Mapping[str, Draw], session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Return seeded inputs of the session's types."""
    rng, feeds = np.random.default_rng(0), {}
    for value in session.get_inputs():
        how = inputs[value.name]
        if "int" in value.type:
            array = rng.integers(int(how.low), int(how.high), how.shape, endpoint=True)
            feeds[value.name] = np.asarray(array, value.type[len("tensor(") : -1])
        else:
            feeds[value.name] = np.asarray(rng.uniform(how.low, how.high, how.shape), np.float32)
    return feeds


def session(model: onnx.ModelProto, *, optimized: bool = True) -> onnxruntime.InferenceSession:
    """Return onnxruntime's session of a model, with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def outputs(session: onnxruntime.InferenceSession, feeds: Arrays) -> dict[str, np.ndarray]:
    """Return what onnxruntime gives, by name."""
    names = [value.name for value in session.get_outputs()]
    return {name: np.asarray(array) for name, array in zip(names, session.run(names, dict(feeds)), strict=True)}


def of_roundings(model: onnx.ModelProto, feeds: Arrays, expected: Arrays, wanted: float) -> float:
    """Return how far onnxruntime is from its results for models and inputs that are off by one rounding.

    No more are tried than reach the distance that is wanted.
    """

    def distance(seed: int) -> float:
        other, given = nudged(model, feeds, seed)
        found = difference(outputs(session(other, optimized=False), given), expected)
        return found if np.isfinite(found) else 0.0

    return greatest_of_draws(distance, lambda greatest: greatest >= wanted)[0]


def difference(found: Arrays, expected: Arrays) -> float:
    """Return the greatest difference over an output's greatest magnitude; infinite where shapes or types differ."""
    worst = 0.0
    for name, want in expected.items():
        got = found[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return float("inf")
        if want.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(got, want) else float("inf"))
            continue
        left, right = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(right)
        if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
            return float("inf")
        scale = float(np.max(np.abs(right[finite]), initial=0.0))
        apart = float(np.max(np.abs(left[finite] - right[finite]), initial=0.0))
        worst = max(worst, apart / max(scale, 1e-30) if np.isfinite(apart) else float("inf"))
    return worst


def tried(model: onnx.ModelProto, entry: Model) -> Build:
    """Return how building and running a model went: as it is, and if that is refused with its input shapes given."""
    with tempfile.TemporaryDirectory() as folder:
        built, fixed, reason = Path(folder) / "built", False, ""
        start = time.perf_counter()
        shapes = {name: how.shape for name, how in entry.inputs.items()}
        try:
            softq.build(model, built, target="cpu")
        except SoftqError as error:
            reason, fixed, start = str(error), True, time.perf_counter()
            try:
                softq.build(model, built, target="cpu", input_shapes=shapes)
            except SoftqError as second:
                return Build("refused", reason if str(second) == reason else f"{reason} With fixed shapes: {second}")
        seconds = time.perf_counter() - start
        size = sum(file.stat().st_size for file in built.rglob("*") if file.is_file())
        plain, rival = session(model, optimized=False), session(model)
        feeds = draw(entry.inputs, rival)
        expected = outputs(plain, feeds)
        with softq.load(built) as artifact:
            given = {spec.name: feeds[spec.name] for spec in artifact.inputs}
            try:
                found = artifact(given)
            except SoftqError as error:
                return Build("refused", f"at run time: {error}".replace(f"{built}: ", ""), fixed, seconds, size)
            error = difference(found, expected)
            own = max(v for v in (0.0, difference(outputs(rival, feeds), expected)) if np.isfinite(v))
            if error > FLOOR + own:
                own = max(own, of_roundings(model, feeds, expected, error - FLOOR))
            tolerance = FLOOR + max(own, entry.tolerance or 0.0)
            result = Build("right", reason, fixed, seconds, size, error, tolerance)
            if error > tolerance:
                shapes = [
                    (n, found[n].shape, want.shape) for n, want in expected.items() if found[n].shape != want.shape
                ]
                result.status, result.reason = "wrong", f"differs by {error:.2g}, onnxruntime by {own:.2g}; {shapes}"
                return result
            start = time.perf_counter()
            artifact(given)
            rounds = int(min(21, max(3, SECONDS / 2 / max(time.perf_counter() - start, 1e-3))))
            calls = {"softq": lambda: artifact(given), "onnxruntime": lambda: rival.run(None, feeds)}
            times = take_turns(calls, rounds)
            result.time, result.rival = (float(np.median(times[name])) for name in calls)
            return result


def main(name: str, out: Path) -> None:
    """Try one model and write what came of it."""
    entry = next(model for model in MODELS if model.name == name)
    record: dict[str, object] = {"name": name, "stage": "download"}

    def reach(stage: str, **found: object) -> None:
        record.update(found, stage=stage)
        out.write_text(json.dumps(record), encoding="utf-8")

    path = extract(entry)
    model = onnx.load(path)
    nodes = len(model.graph.node)
    reach("inspect", bytes=path.stat().st_size, nodes=nodes)
    try:
        sites = softq.inspect(model)
    except SoftqError as error:
        reach("end", refused=str(error))
        return
    reach("build", softmaxes=[{"site": site.id, "verdict": str(site.verdict)} for site in sites])
    shipped = tried(model, entry)
    reach("convert", shipped=asdict(shipped))
    try:
        conversion = softq.convert(model)
    except SoftqError as error:
        reach("end", not_converted=str(error))
        return
    count = len(conversion.plan.sites)
    reach("build converted", converted_sites=count)
    if count:
        reach("end", converted=asdict(tried(conversion.model, entry)))
    reach("end")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
