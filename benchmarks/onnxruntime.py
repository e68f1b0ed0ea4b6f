"""Times converted models in onnxruntime, with compiled operators and without, beside the float model.

    python -m benchmarks.onnxruntime [--rounds 40]

The models: Softmax and the product with V, 12 heads of 512 x 512 scores and 64 values, and each of the two alone; a
whole attention of 12 heads of 64 with 512 and with 4096 tokens, as exporters write it, beside onnxruntime's own
MultiHeadAttention; and two whole models, the ViT of models/mnist_vit and MiniLM where it was downloaded. Sessions have
the same options; their runs take turns. With one thread medians of that thread's processor time are compared, which
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
from softq.modelfile import save
from softq.onnxruntime import register

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "onnxruntime.json"
COMMAND = "python -m benchmarks.onnxruntime"
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


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=40)
    rounds = given.parse_args().rounds
    vit, cache = ROOT / "models" / "mnist_vit", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    minilm = cache / "softq" / "models" / "minilm"
    found: dict[str, dict[str, dict[str, float]]] = {}
    memory: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:

        def add(what: str, make: Callable[[Path], dict[str, Timed]], share: float = 1, operations: int = 0) -> None:
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
    facts = {
        "schema": 2,
        "command": COMMAND,
        "rounds": rounds,
        "machine": description(),
        "milliseconds": found,
        "mebibytes": memory,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(document(facts))


_TITLES = {
    "softmax": (f"Softmax and MatMul, {HEADS} heads of {LENGTH} x {LENGTH} scores, {WIDTH} values", "both"),
    **{f"attention {n}": (f"attention, {n} tokens, {HEADS} heads of {WIDTH}", "attention") for n in LENGTHS},
    "vit": ("the ViT of models/mnist_vit, one image", "vit"),
    "minilm": ("MiniLM, one sentence of its data", "minilm"),
}


def document(found: Mapping[str, Any]) -> str:
    """Return the tables of docs/onnxruntime.md; of two threads only if both had a processor."""
    machine, measured = found["machine"], found["milliseconds"]
    free = all(each["2"][PEAK] < 0.7 * each["1"][PEAK] for each in measured.values() if PEAK in each["1"])
    threads = ("1", "2") if free else ("1",)
    head = ["model", "", "one thread", "of", "two threads", "of"][: 2 + 2 * len(threads)]
    clocks = ", with two the least by the clock" if free else "; others ran here, so that two threads were not free"
    lines = [
        f"From `{found['command']}` on {machine['processor']} ({machine['vectors']}; {machine['versions']}), up "
        f"to {found['rounds']} runs in turns, ms: with one thread medians of its processor time{clocks}. `of` is the "
        "share of the float model's time:",
        "",
        f"| {' | '.join(head)} |",
        "| --- " * len(head) + "|",
    ]
    for what, (title, float_model) in _TITLES.items():
        if what not in measured:
            continue
        each = measured[what]
        shown = [key for key in each["1"] if key == PEAK or key.split()[0] in (float_model, "own")]
        for number, name in enumerate(shown):
            cells = [f"{each[t][name]:.2f} | {each[t][name] / each[t][float_model]:.2f}" for t in threads]
            lines.append(f"| {'' if number else title} | {_label(name)} | {' | '.join(cells)} |")
    times = measured["softmax"]["1"]
    share = times["product"] / times["both"]
    grown = [f"{size:.0f} MiB ({_label(name)})" for name, size in found["mebibytes"].items()]
    lines += [
        "",
        f"The product of the first model alone takes {times['product']:.2f} ms, {share:.2f} of it, with one thread.",
        f"A process grows, in its first run of {LENGTHS[-1]} tokens, by {', '.join(grown)}.",
    ]
    return "\n".join(lines)


def _label(name: str) -> str:
    if name == PEAK:
        return name
    model, *method = name.split()
    if not method:
        return "onnxruntime's MultiHeadAttention" if model == "own" else "float"
    return f"`{method[0]}`, {'without the library' if 'alone' in method else 'with it'}"


if __name__ == "__main__":
    main()
