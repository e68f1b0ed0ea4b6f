"""softq's kernels as functions of this process, and onnxruntime on memory that is there."""

from __future__ import annotations

import ctypes
import math
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import DTypeLike, NDArray
from tvm import tirx

from benchmarks.cpu.timing import Call
from softq.artifact.machine import Cpu
from softq.codegen.cpu.object_code import object_code

Array = NDArray[np.generic]

_LINE = 64
"""Bytes of a cache line."""


def library(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> ctypes.CDLL:
    """Return a loaded library with the kernels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "kernels.o").write_bytes(object_code(functions, machine))
        command = ["gcc", "-shared", "-nostdlib", "-o", str(path / "kernels.so"), str(path / "kernels.o")]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(path / "kernels.so"))


def aligned(shape: Sequence[int], dtype: DTypeLike) -> Array:
    """Return zeros that begin with a cache line, as the arena of a built model does."""
    count, size = math.prod(shape), np.dtype(dtype).itemsize
    memory = np.empty(count * size + _LINE, np.uint8)
    memory.fill(0)  # so that every page is there
    start = -memory.ctypes.data % _LINE
    return memory[start : start + count * size].view(dtype).reshape(shape)


def pointer(array: Array) -> ctypes.c_void_p:
    """Return an array's address; the caller keeps the array."""
    return ctypes.c_void_p(array.ctypes.data)


def session_call(
    model: onnx.ModelProto, inputs: Mapping[str, Array], outputs: Mapping[str, Array], threads: int
) -> Call:
    """Return a run of a model in onnxruntime with its default settings, on the arrays themselves."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    keep = (inputs, outputs)

    def call() -> object:
        assert keep
        return session.run_with_iobinding(binding)

    return call
