"""Times operators that come with softq beside those that `softq build` makes for a model, and beside functions' bodies.

    python -m benchmarks.prebuilt FOLDER [--method NAME ...]

FOLDER is what `python -m softq.prebuilt` wrote. Of each drop-in method, with its default options, rows of 512 and of 50
float32 scores, as many as 12 heads have; sessions of one thread take turns, and medians of its processor time are
compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import parser

import softq
from softq.methods import METHODS
from softq.modelfile import save
from softq.onnxruntime import coverage, register

HEADS = 12
ROUNDS = 30


def times(model: Path, own: Path, ours: Path, length: int) -> list[float]:
    """Return medians in ms: with the model's operators, with those that come with softq, and without any."""
    scores = 3 * np.random.default_rng(0).normal(size=(1, HEADS, length, length)).astype(np.float32)
    sessions: list[onnxruntime.InferenceSession] = []
    for folder in (own, ours, None):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        if folder is not None:
            register(options, folder)
        sessions.append(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
    taken: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for made, each in zip(sessions, taken, strict=True):
            start = time.thread_time()
            made.run(None, {"scores": scores})
            each.append(1000 * (time.thread_time() - start))
    return [statistics.median(each) for each in taken]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--method", action="append")
    given = asked.parse_args()
    ratios: list[float] = []
    print("| method | row | softq build | comes with softq | of it | body |\n| --- | --- | --- | --- | --- | --- |")
    for name, method in METHODS.entries().items():
        if not method.drop_in or name not in (given.method or (name,)):
            continue
        for length in (512, 50):
            shape = f"float[1, {HEADS}, {length}, {length}]"
            graph = f"g ({shape} scores) => ({shape} out) {{ out = Softmax<axis = -1>(scores) }}"
            plain = parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {graph}')
            with tempfile.TemporaryDirectory() as place:
                model = Path(place, "quantized.onnx")
                save(softq.convert(plain, method=name, all_sites=True).model, model)
                assert not coverage(model, given.folder).missing
                own = softq.build(model, Path(place, "own"), target="onnxruntime").folder
                built, comes, body = times(model, own, given.folder, length)
            ratios.append(comes / built)
            print(f"| `{name}` | {length} | {built:.3f} | {comes:.3f} | {ratios[-1]:.2f} | {body:.3f} |", flush=True)
    print(f"\nof it: median {statistics.median(ratios):.2f}, at most {max(ratios):.2f}")


if __name__ == "__main__":
    main()
