"""Times converted models in onnxruntime, with compiled operators and without, beside the float model.

    python -m benchmarks.onnxruntime [--rounds 40]

The model is Softmax and the product with V, 12 heads of 512 x 512 scores and 64 values, and each of the two alone.
Sessions have the same options and one thread, the caller's; their runs take turns. Medians of that thread's processor
time are compared, which other programs disturb less than the clock; medians by the clock stand beside them in
benchmarks/onnxruntime.json, from which docs/onnxruntime.md is generated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import parser

import softq
from benchmarks.cpu.machine import description
from softq.modelfile import save
from softq.onnxruntime import register

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "onnxruntime.json"
COMMAND = "python -m benchmarks.onnxruntime"
HEADS, LENGTH, WIDTH = 12, 512, 64
METHODS = ("deferred-log", "exact")
_SCORES, _VALUES = f"float[1, {HEADS}, {LENGTH}, {LENGTH}]", f"float[1, {HEADS}, {LENGTH}, {WIDTH}]"
GRAPHS = {
    "both": f"({_SCORES} scores, {_VALUES} values) => ({_VALUES} out) {{ p = Softmax<axis = -1>(scores) "
    "out = MatMul(p, values) }",
    "softmax": f"({_SCORES} scores) => ({_SCORES} out) {{ out = Softmax<axis = -1>(scores) }}",
    "product": f"({_SCORES} scores, {_VALUES} values) => ({_VALUES} out) {{ out = MatMul(scores, values) }}",
}


def open_session(model: Path, operators: Path | None = None) -> onnxruntime.InferenceSession:
    """Return a session of one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if operators is not None:
        register(options, operators)
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def measure(sessions: Mapping[str, onnxruntime.InferenceSession], rounds: int) -> dict[str, dict[str, float]]:
    """Return for each session the median milliseconds of the thread and by the clock."""
    rng = np.random.default_rng(0)
    feeds = {
        "scores": rng.normal(0, 3, (1, HEADS, LENGTH, LENGTH)).astype(np.float32),
        "values": rng.normal(0, 1, (1, HEADS, LENGTH, WIDTH)).astype(np.float32),
    }
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(rounds + 2):
        for name, made in sessions.items():
            given = {value.name: feeds[value.name] for value in made.get_inputs()}
            begin = time.thread_time(), time.perf_counter()
            made.run(None, given)
            end = time.thread_time(), time.perf_counter()
            if number >= 2:
                times[name].append((end[0] - begin[0], end[1] - begin[1]))
    return {
        name: {
            "thread": statistics.median(t for t, _ in found) * 1e3,
            "clock": statistics.median(c for _, c in found) * 1e3,
        }
        for name, found in times.items()
    }


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=40)
    rounds = given.parse_args().rounds
    sessions: dict[str, onnxruntime.InferenceSession] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for graph, text in GRAPHS.items():
            proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {graph} {text}')
            save(proto, folder / f"{graph}.onnx")
            sessions[graph] = open_session(folder / f"{graph}.onnx")
            for method in METHODS if graph != "product" else ():
                model, operators = folder / f"{graph}-{method}.onnx", folder / method
                save(softq.convert(proto, method=method).model, model)
                if not operators.exists():
                    softq.build(model, operators, target="onnxruntime")
                sessions[f"{graph} {method}"] = open_session(model, operators)
                if graph == "both":
                    sessions[f"function {method}"] = open_session(model)
        found = measure(sessions, rounds)
    facts = {
        "schema": 1,
        "command": COMMAND,
        "rounds": rounds,
        "machine": description(),
        "milliseconds": found,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(document(facts))


def document(found: Mapping[str, Any]) -> str:
    """Return the table of docs/onnxruntime.md."""
    machine = found["machine"]
    times = {name: each["thread"] for name, each in found["milliseconds"].items()}
    lines = [
        f"From `{found['command']}` on {machine['processor']} ({machine['vectors']}; {machine['versions']}): "
        f"{HEADS} heads of {LENGTH} x {LENGTH} scores, {WIDTH} values, one thread; medians of "
        f"{found['rounds']} runs in turns, ms of the thread's processor time:",
        "",
        "| model | Softmax and MatMul | of the float model | the softmax alone |",
        "| --- | --- | --- | --- |",
        f"| float | {times['both']:.2f} | 1 | {times['softmax']:.2f} |",
    ]
    for method in METHODS:
        for what, whole, alone in (
            ("without the library", f"function {method}", None),
            ("with it", f"both {method}", f"softmax {method}"),
        ):
            ratio, softmax = times[whole] / times["both"], "" if alone is None else f"{times[alone]:.2f}"
            lines.append(f"| `{method}`, {what} | {times[whole]:.2f} | {ratio:.2f} | {softmax} |")
    share = times["product"] / times["both"]
    lines += ["", f"The product alone takes {times['product']:.2f} ms in all of them, {share:.2f} of the float model."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
