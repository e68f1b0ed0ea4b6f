"""Times converted models in onnxruntime, with compiled operators and without, beside the float model.

    python -m benchmarks.onnxruntime [--rounds 40] [--only NAME]

The models: Softmax and the product with V, 12 heads of 512 x 512 scores and 64 values, and each of the two alone; a
whole attention of 12 heads of 64 with 512 and with 4096 tokens, as exporters write it, beside onnxruntime's own
MultiHeadAttention; and whole models, the ViT of models/mnist_vit, MiniLM where it was downloaded, and those of
`benchmarks.onnxruntime_models` beside what onnxruntime's own optimizer makes of them. Sessions have the same options;
their runs take turns. With one thread medians of that thread's processor time are compared, which
other programs disturb less than the clock; with two threads the least times by the clock, for the same reason. All are
in benchmarks/onnxruntime.json, from which docs/onnxruntime.md is generated.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import parser

import softq
from benchmarks.cpu.machine import description
from benchmarks.onnxruntime_models import MODELS, optimize
from softq.modelfile import save
from softq.onnxruntime import register

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "onnxruntime.json"
COMMAND = "python -m benchmarks.onnxruntime"
OPTIMIZED = "optimized"
PEAK = "both products at the processor's peak rate"
HEADS, LENGTH, WIDTH = 12, 512, 64
LENGTHS = (512, 4096)
METHODS = ("deferred-log", "exact")
SETTINGS: Mapping[str, Mapping[str, int]] = {"deferred-log": {"bits": 4}, "exact": {}}
Feeds = dict[str, NDArray[Any]]

_SCORES, _VALUES = f"float[1, {HEADS}, {LENGTH}, {LENGTH}]", f"float[1, {HEADS}, {LENGTH}, {WIDTH}]"
GRAPHS = {
    "both": f"({_SCORES} scores, {_VALUES} values) => ({_VALUES} out) {{ p = Softmax<axis = -1>(scores) "
    "out = MatMul(p, values) }",
    "softmax": f"({_SCORES} scores) => ({_SCORES} out) {{ out = Softmax<axis = -1>(scores) }}",
    "product": f"({_SCORES} scores, {_VALUES} values) => ({_VALUES} out) {{ out = MatMul(scores, values) }}",
}
_TOKENS = f"float[1, n, {HEADS * WIDTH}]"
ATTENTION = f"""({_TOKENS} q, {_TOKENS} k, {_TOKENS} v) => ({_TOKENS} out) {{
    heads = Constant<value = int64[4] {{0, 0, {HEADS}, {WIDTH}}}>() flat = Constant<value = int64[3] {{0, 0, -1}}>()
    scale = Constant<value = float {{{WIDTH**-0.5}}}>()
    q0 = Reshape(q, heads) k0 = Reshape(k, heads) v0 = Reshape(v, heads)
    q1 = Transpose<perm = [0, 2, 1, 3]>(q0) k1 = Transpose<perm = [0, 2, 3, 1]>(k0)
    v1 = Transpose<perm = [0, 2, 1, 3]>(v0)
    s = MatMul(q1, k1) scaled = Mul(s, scale) p = Softmax<axis = -1>(scaled) o = MatMul(p, v1)
    o1 = Transpose<perm = [0, 2, 1, 3]>(o) out = Reshape(o1, flat) }}"""
OWN = f"""({_TOKENS} q, {_TOKENS} k, {_TOKENS} v) => ({_TOKENS} out) {{
    out = com.microsoft.MultiHeadAttention<num_heads = {HEADS}>(q, k, v) }}"""


@dataclass(frozen=True)
class Timed:
    """Something that is timed.

    Attributes:
        model: The model's file.
        operators: The folder of its operators, or None.
        feeds: Its inputs.
    """

    model: Path
    operators: Path | None
    feeds: Feeds


def open_session(model: Path, operators: Path | None, threads: int) -> onnxruntime.InferenceSession:
    """Return a session of so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if operators is not None:
        register(options, operators)
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def measure(timed: Mapping[str, Timed], threads: int, rounds: int, operations: int) -> dict[str, float]:
    """Return milliseconds of each: the median of the thread's if it is one, else the least by the clock.

    Args:
        timed: What is timed.
        threads: How many.
        rounds: How often.
        operations: Of float32, that are timed at the processor's peak rate; 0 for none.
    """
    clock: Callable[[], float] = time.thread_time if threads == 1 else time.perf_counter
    calls: dict[str, Callable[[], object]] = {}
    for name, each in timed.items():
        calls[name] = partial(open_session(each.model, each.operators, threads).run, None, each.feeds)
    if operations:
        from benchmarks.cpu.peak import peak_call
        from softq.codegen.cpu.machines import host

        calls[PEAK] = peak_call(operations, host("cpu", "native", ""), threads)
    times: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 2):
        for name, call in calls.items():
            begin = clock()
            call()
            if number >= 2:
                times[name].append(clock() - begin)
    best = statistics.median if threads == 1 else min
    return {name: best(found) * 1e3 for name, found in times.items()}


def growth(timed: Timed) -> float:
    """Return the MiB by which a process of its own grows while it runs for the first time."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_growth, (timed,)) / 2**20


def _growth(timed: Timed) -> float:
    from benchmarks.cpu.attention import resident

    made = open_session(timed.model, timed.operators, 1)
    before = resident("VmRSS")
    made.run(None, timed.feeds)
    return resident("VmHWM") - before


def proto_of(text: str) -> onnx.ModelProto:
    """Return a model of ONNX text."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> timed {text}')


def variants(folder: Path, name: str, model: onnx.ModelProto | Path, methods: tuple[str, ...]) -> Iterator[Any]:
    """Yield names, files and operators: of the model, and converted without operators and with them."""
    source = folder / f"{name}.onnx" if isinstance(model, onnx.ModelProto) else model
    if isinstance(model, onnx.ModelProto):
        save(model, source)
    yield name, source, None
    for method in methods:
        converted = softq.convert(source, method=method, settings=SETTINGS[method], all_sites=True, fuse_attention=True)
        written, operators = folder / f"{name}-{method}.onnx", folder / f"{name}-{method}"
        save(converted.model, written, source=source)
        softq.build(written, operators, target="onnxruntime")
        yield f"{name} {method}", written, operators
        yield f"{name} {method} alone", written, None


def small(folder: Path) -> dict[str, Timed]:
    """Return Softmax and MatMul, together and alone."""
    rng = np.random.default_rng(0)
    numbers = {
        "scores": rng.normal(0, 3, (1, HEADS, LENGTH, LENGTH)).astype(np.float32),
        "values": rng.normal(0, 1, (1, HEADS, LENGTH, WIDTH)).astype(np.float32),
    }
    found: dict[str, Timed] = {}
    for graph, text in GRAPHS.items():
        proto = proto_of(text)
        feeds = {value.name: numbers[value.name] for value in proto.graph.input}
        for name, model, operators in variants(folder, graph, proto, METHODS if graph != "product" else ()):
            if graph == "both" or not name.endswith("alone"):
                found[name] = Timed(model, operators, feeds)
    return found


def attention(folder: Path, length: int) -> dict[str, Timed]:
    """Return a whole attention, and onnxruntime's own."""
    rng = np.random.default_rng(0)
    feeds: Feeds = {name: rng.normal(0, 1, (1, length, HEADS * WIDTH)).astype(np.float32) for name in "qkv"}
    methods = METHODS if length == LENGTHS[0] else METHODS[:1]
    made = [*variants(folder, "attention", proto_of(ATTENTION), methods), *variants(folder, "own", proto_of(OWN), ())]
    # Bodies of functions want many tensors of all scores.
    kept = [each for each in made if length == LENGTHS[0] or not each[0].endswith("alone")]
    return {name: Timed(model, operators, feeds) for name, model, operators in kept}


def whole(folder: Path, name: str, model: Path, data: Path, samples: int) -> dict[str, Timed]:
    """Return a whole model with the first samples of its data."""
    with np.load(data) as arrays:
        inputs = open_session(model, None, 1).get_inputs()
        feeds = {value.name: arrays[value.name][:samples] for value in inputs}
    return {key: Timed(file, operators, feeds) for key, file, operators in variants(folder, name, model, METHODS[:1])}


def larger(folder: Path, name: str, fused: dict[str, dict[str, int]]) -> dict[str, Timed]:
    """Return a model of `MODELS`, converted, and as onnxruntime's own optimizer makes it if it takes it.

    What that fuses is added to `fused`.
    """
    given = MODELS[name]
    source, feeds = given.work.path(), given.work.feeds(np.random.default_rng(0))
    made = [each for each in variants(folder, name, source, METHODS[:1]) if not each[0].endswith("alone")]
    written = folder / f"{name}-optimized.onnx"
    counts = optimize(source, written, given.kind)
    if counts is not None:
        fused[name] = counts
        made.append((f"{name} {OPTIMIZED}", written, None))
    return {key: Timed(file, operators, feeds) for key, file, operators in made}


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=40)
    given.add_argument("--only", default="", help="measure what has this in its name, and write nothing")
    rounds, only = given.parse_args().rounds, given.parse_args().only
    vit, cache = ROOT / "models" / "mnist_vit", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    minilm = cache / "softq" / "models" / "minilm"
    found: dict[str, dict[str, dict[str, float]]] = {}
    memory: dict[str, float] = {}
    fused: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as name:

        def add(what: str, make: Callable[[Path], dict[str, Timed]], share: float = 1, operations: int = 0) -> None:
            if only not in what:
                return
            folder = Path(name) / what
            folder.mkdir()
            timed, runs = make(folder), max(3, round(rounds * share))
            found[what] = {f"{threads}": measure(timed, threads, runs, operations) for threads in (1, 2)}
            if what == f"attention {LENGTHS[-1]}":
                memory.update({key: growth(each) for key, each in timed.items()})
            print(what, json.dumps(found[what], indent=1), flush=True)

        add("softmax", small)
        for length in LENGTHS:
            operations = 4 * HEADS * length**2 * WIDTH
            add(f"attention {length}", lambda f, n=length: attention(f, n), (512 / length) ** 1.5, operations)
        add("vit", lambda folder: whole(folder, "vit", vit / "mnist_vit.onnx", vit / "data.npz", 1))
        if (minilm / "model.onnx").exists():
            add("minilm", lambda f: whole(f, "minilm", minilm / "model.onnx", minilm / "data.npz", 1))
        for key, each in MODELS.items():
            add(key, lambda folder, key=key: larger(folder, key, fused), each.share)
    if only:
        return
    from benchmarks.onnxruntime_table import document

    facts = {
        "schema": 2,
        "command": COMMAND,
        "rounds": rounds,
        "machine": description(),
        "milliseconds": found,
        "mebibytes": memory,
        "fused": fused,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(document(facts))


if __name__ == "__main__":
    main()
