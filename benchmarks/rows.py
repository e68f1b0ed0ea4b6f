"""Row kernels against onnxruntime's Softmax, one thread, in one process.

    python -m benchmarks.rows [--shape 4096x512 ...] [--rounds 41]

Prints the ratio of medians: below 1 the kernel is faster. The runs of all kernels and of onnxruntime take turns, so
that what else the machine does meets all of them alike. A kernel of the exact softmax or of deferred-log gives weights
and their sum, for a division behind the product with V; onnxruntime's Softmax divides.
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from softq.methods import METHODS
from softq.rowprog import DType, Program
from softq.rowprog.types import Kind
from softq.targets._native.codegen import object_code
from softq.targets._native.machine import Machine
from softq.targets._native.rows import row_kernel

SHAPES = ("2364x197", "4096x512", "1024x4096")
KERNELS: Mapping[str, tuple[str, Mapping[str, int | float], DType]] = {
    "exact": ("exact", {}, DType.F32),
    "deferred-log, 4 bits": ("deferred-log", {"bits": 4, "r": 1.0}, DType.F32),
    "deferred-log, 3 bits, r = 0.75": ("deferred-log", {"bits": 3, "r": 0.75}, DType.F32),
    "deferred-log, 4 bits, int8": ("deferred-log", {"bits": 4, "r": 1.0, "step": 0.1}, DType.I8),
}

HOSTS = {
    64: Machine("cpu", "x86_64-unknown-linux-gnu", "znver4", (), "x86_64-linux-gnu", 64, 32),
    32: Machine("cpu", "x86_64-unknown-linux-gnu", "haswell", (), "x86_64-linux-gnu", 32, 16),
}


def pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def kernel(program: Program, machine: Machine, scores: NDArray[np.generic], folder: Path) -> Callable[[], None]:
    """Return a call of the program's kernel on these scores."""
    built = row_kernel(program, machine, symbol="kernel", max_length=scores.shape[1])
    name = Path(tempfile.mkdtemp(dir=folder))
    (name / "kernel.o").write_bytes(object_code([built.function], machine))
    command = ["gcc", "-shared", "-nostdlib", "-o", str(name / "kernel.so"), str(name / "kernel.o")]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(name / "kernel.so")).kernel
    rows, length = scores.shape
    shapes = [scores.shape if program.outputs[o].kind is Kind.ROW else (rows, 1) for o in built.outputs]
    outputs = [np.zeros(shape, np.float32) for shape in shapes]
    arguments = [*map(pointer, (scores, *outputs)), *map(ctypes.c_int64, (length, 1, rows, 0, rows))]
    keep = (scores, outputs)

    def call() -> None:
        assert keep
        function(*arguments)

    return call


def softmax(scores: NDArray[np.float32]) -> Callable[[], object]:
    """Return a call of onnxruntime's Softmax into memory that is there."""
    shape = list(scores.shape)
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, out = session.io_binding(), np.zeros_like(scores)
    for name, array, bind in (("x", scores, binding.bind_input), ("y", out, binding.bind_output)):
        bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    keep = (scores, out)

    def call() -> object:
        assert keep
        return session.run_with_iobinding(binding)

    return call


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="*", default=list(SHAPES), help="rows x elements")
    parser.add_argument("--rounds", type=int, default=41, help="runs of each, in turn")
    parser.add_argument("--vector-bytes", type=int, default=64, choices=sorted(HOSTS), help="vectors of the kernels")
    given = parser.parse_args()
    print(f"{platform.machine()}, one thread, medians of {given.rounds}, time / time of onnxruntime's Softmax")
    for shape in given.shape:
        rows, length = map(int, shape.split("x"))
        floats = (np.random.default_rng(0).normal(size=(rows, length)) * 3).astype(np.float32)
        integers = np.clip(np.rint(floats * 10), -128, 127).astype(np.int8)
        with tempfile.TemporaryDirectory() as folder:
            calls: dict[str, Callable[[], object]] = {"onnxruntime": softmax(floats)}
            for name, (method, settings, kind) in KERNELS.items():
                chosen = METHODS.get(method)
                program = chosen.program(chosen.resolve(chosen.configure(settings), False), scores=kind)
                scores = floats if kind.is_float else integers
                calls[name] = kernel(program, HOSTS[given.vector_bytes], scores, Path(folder))
            times: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(given.rounds):
                for name, call in calls.items():
                    times[name].append(seconds(call))
            reference = statistics.median(times["onnxruntime"])
            for name in KERNELS:
                print(f"{shape:>10}  {name:32} {statistics.median(times[name]) / reference:.2f}")


if __name__ == "__main__":
    main()
