"""Whole models, exact and with 4-bit deferred-log, against the float model in onnxruntime."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
from onnx import parser

import softq
from benchmarks.cpu.section import Result, Section, Settings
from benchmarks.cpu.timing import Call, ratio, take_turns
from benchmarks.cpu.works import WORKS, Feeds, Work, operations, weight_bytes
from softq.modelfile import as_model

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    import torch

ROUNDS = 21
METHODS: Mapping[str, tuple[str, Mapping[str, int], float]] = {
    "exact": ("exact", {}, 1.00),
    "deferred-log, 4 bits": ("deferred-log", {"bits": 4}, 0.97),
}
"""Method, its settings, and the ratio that is aimed at."""

ONNXRUNTIME, TORCH, TVM = "onnxruntime", "torch, eager", "TVM's lowering"
PEAK, COPY = "the products at the peak rate", "copy of the weights"
BUILD = "building"

# TVM's own lowering takes tens of times as long: it is run on these alone, and a few times.
_TVM_PLACES, _TVM_ROUNDS = ("MNIST-ViT-1", "MiniLM-1x128"), 3


def measure(settings: Settings) -> Iterable[Result]:
    """Yield the results, a model at a time."""
    for place, work in WORKS.items():
        if settings.wants(place):
            yield from _measured(place, work, settings)


def _measured(place: str, work: Work, settings: Settings) -> Iterable[Result]:
    path, feeds = work.path(), work.feeds(np.random.default_rng(0))
    chosen = {name: m for name, m in METHODS.items() if settings.wants(place, name)}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (method, options, _) in chosen.items():
            model = softq.convert(path, method=method, settings=options).model
            seconds = build_seconds(model, Path(scratch) / name, f"cpu,mcpu={settings.cpu}")
            if work.build_seconds is not None:
                yield _building(place, name, seconds, work.build_seconds)
        for threads in settings.threads:
            calls = {ONNXRUNTIME: session(path, feeds, threads), **_bounds(path, work, settings.cpu, threads)}
            if work.module is not None:
                calls[TORCH] = _torch(work.module(), feeds, threads)
            bounds = list(calls)
            for name in chosen:
                calls[name] = artifact(Path(scratch) / name, feeds, threads)
            times = take_turns(calls, settings.rounds or ROUNDS)
            for name, (_, _, limit) in chosen.items():
                for rival in bounds:
                    aim = limit if rival == ONNXRUNTIME else None
                    yield ratio(times, name, rival, work=name, place=place, threads=threads, limit=aim)
        if place in _TVM_PLACES and 1 in settings.threads:
            calls = {name: artifact(Path(scratch) / name, feeds, 1) for name in chosen}
            calls[TVM] = _tvm(path, work, feeds)
            times = take_turns(calls, _TVM_ROUNDS)
            for name in chosen:
                yield ratio(times, name, TVM, work=name, place=place, limit=0.05)


SMALL = """<ir_version: 10, opset_import: ["": 21]>
g (float[N] x) => (float[N] y) {
    y = Relu (x)
}"""


def build_seconds(model: ir.Model | onnx.ModelProto, out: Path, target: str) -> float:
    """Return the seconds that a build takes without what is imported for it, and without the cache of kernels."""
    with mock.patch.dict(os.environ, {"SOFTQ_CACHE_SIZE": "0"}), tempfile.TemporaryDirectory() as scratch:
        softq.build(parser.parse_model(SMALL), Path(scratch) / "small", target=target)
        start = time.perf_counter()
        softq.build(model, out, target=target)
        return time.perf_counter() - start


def _building(place: str, name: str, seconds: float, bound: float) -> Result:
    part = seconds / bound
    return Result(f"{BUILD}: {name}", f"{bound:g} s", place, 1, 1.0, seconds, bound, part, part, part, part)


def _bounds(path: Path, work: Work, cpu: str, threads: int) -> Mapping[str, Call]:
    """Return what no program can be faster than."""
    from benchmarks.cpu.peak import peak_call
    from softq.codegen.cpu import machines

    model, machine = as_model(path), machines.host("cpu", cpu, "")
    found: dict[str, Call] = {PEAK: peak_call(operations(model, work.sizes), machine, threads)}
    if work.reads_weights and threads == 1:
        weights = np.ones(weight_bytes(model), np.uint8)  # zeros would all be one page
        copy = np.empty_like(weights)
        found[COPY] = lambda: np.copyto(copy, weights)
    return found


def session(path: Path, feeds: Feeds, threads: int) -> Call:
    """Return a run of a model in onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {value.name: feeds[value.name] for value in session.get_inputs()}
    return lambda: session.run(None, given)


def _torch(module: torch.nn.Module, feeds: Feeds, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    module.eval()
    given = [torch.from_numpy(array) for array in feeds.values()]

    def call() -> object:
        with torch.inference_mode():
            return module(*given).numpy()

    return call


def artifact(built: Path, feeds: Feeds, threads: int) -> Call:
    """Return a run of a built model."""
    loaded = softq.load(built, threads=threads)
    given = {spec.name: feeds[spec.name] for spec in loaded.inputs}
    return lambda: loaded(given)


def _tvm(path: Path, work: Work, feeds: Feeds) -> Call:
    """Return TVM's own lowering of the model with its sizes filled in; it uses one thread as it is not tuned."""
    import onnx_ir as ir
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from softq.passes.prepare import prepare

    model = ir.to_proto(prepare(as_model(path), work.sizes))
    target = tvm.target.Target({"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu())})
    compiled = tvm.compile(from_onnx(model), target)  # pyright: ignore[reportArgumentType]
    machine = relax.VirtualMachine(compiled, tvm.cpu())  # pyright: ignore[reportArgumentType]
    arrays = [tvm.runtime.tensor(feeds[value.name]) for value in model.graph.input]
    return lambda: machine["main"](*arrays)


SECTION = Section(
    name="models",
    title="Whole models",
    text=(
        "Both run with their default settings from NumPy arrays to NumPy arrays; onnxruntime has the float model. "
        "Images are noise, tokens random. torch runs the module that the model was exported from, in eager mode and "
        "inference_mode, with other weights, where the repository has its code. The products at the peak rate are as "
        "many multiply-adds as the model has, in registers; a model that decodes one token does little else than to "
        "read its weights. Building is `softq.build` without the cache of kernels, in a process that has built a small "
        "model before: Python's imports are done."
    ),
    measure=measure,
)
