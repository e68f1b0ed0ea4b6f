"""Times attentions of 8-bit codes as compiled operators in onnxruntime, beside the float one as single operators.

    python -m benchmarks.coded_attention [--length 512]

12 heads of 64; queries, keys and values are int8 with one scale each, and DequantizeLinear stands before each product.
Sessions of one thread take turns; medians of its processor time are compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import softq
from softq.modelfile import save
from softq.onnxruntime import register

HEADS, WIDTH, STEP = 12, 64, 0.03
ROUNDS = 40
SETTINGS = {"weights of 15 bits": {}, "weights of 8 bits": {"weight_bits": 8, "peak": "full"}}


def attention(length: int, coded: bool) -> onnx.ModelProto:
    """Return the model, of codes or of floats."""
    kind = "int8" if coded else "float"
    perms = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    lines = [f"{x}r = Reshape({x}, split) {x}t = Transpose <perm = {perm}> ({x}r)" for x, perm in perms.items()]
    lines += [f"{x}d = {f'DequantizeLinear({x}t, step)' if coded else f'Identity({x}t)'}" for x in perms]
    inputs = ", ".join(f"{kind}[1, {length}, {HEADS * WIDTH}] {x}" for x in perms)
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        attention ({inputs}) => (float[1, {length}, {HEADS * WIDTH}] out)
        <int64[4] split = {{1, {length}, {HEADS}, {WIDTH}}}, int64[3] flat = {{1, {length}, {HEADS * WIDTH}}},
         float scale = {{{WIDTH**-0.5}}}, float step = {{{STEP}}}>
        {{ {" ".join(lines)} scores = MatMul(qd, kd) scaled = Mul(scores, scale) p = Softmax <axis = -1> (scaled)
           heads = MatMul(p, vd) turned = Transpose <perm = [0, 2, 1, 3]> (heads) out = Reshape(turned, flat) }}""")


def session(model: Path, folder: Path | None) -> onnxruntime.InferenceSession:
    """Return a session of one thread, with a folder's operators or without."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if folder is not None:
        register(options, folder)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--length", type=int, default=512)
    length = asked.parse_args().length
    rng = np.random.default_rng(0)
    floats = {x: rng.normal(size=(1, length, HEADS * WIDTH)).astype(np.float32) for x in "qkv"}
    codes = {x: np.clip(np.rint(array / STEP), -128, 127).astype(np.int8) for x, array in floats.items()}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "float.onnx")
        onnx.save(attention(length, False), path)
        runs = {"float": (session(path, None), floats)}
        for number, (name, settings) in enumerate(SETTINGS.items()):
            converted = softq.convert(attention(length, True), settings=settings, fuse_attention=True).model
            path, folder = Path(place, f"{number}.onnx"), Path(place, f"operators{number}")
            save(converted, path)
            softq.build(converted, folder, target="onnxruntime")
            runs[name] = (session(path, folder), codes)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, (made, feeds) in runs.items():
            start = time.thread_time()
            made.run(None, feeds)
            taken[name].append(1000 * (time.thread_time() - start))
    medians = {name: statistics.median(each) for name, each in taken.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.2f} ms, {median / medians['float']:.2f} of float")


if __name__ == "__main__":
    main()
