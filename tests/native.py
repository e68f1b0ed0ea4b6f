"""Running a model through TVM in a test: import, lowering, code generation, and a plain executor of the step list."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from softq.artifact.program import Program, evaluate
from softq.modelfile import as_model

Array = NDArray[np.generic]


class Executor:
    """A built program in Python: the same steps as the driver's, one after another, memory filled with noise first."""

    def __init__(self, program: Program) -> None:
        self.program = program
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            for i, code in enumerate(program.objects):
                (path / f"{i}.o").write_bytes(code)
            names = [str(path / f"{i}.o") for i in range(len(program.objects))]
            command = ["cc", "-shared", "-o", str(path / "kernels.so"), *names, "-lm"]
            subprocess.run(command, check=True)
            self._kernels = ctypes.CDLL(str(path / "kernels.so"))
        self._weights = {at: np.asarray(array, order="C") for at, array in program.weights.items()}

    def call(self, kernel: str, arrays: list[Array], numbers: list[int]) -> None:
        """Run a kernel; the last two numbers are the range of its work items."""
        getattr(self._kernels, kernel)(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), *map(ctypes.c_int64, numbers))

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name."""
        program, dims = self.program, dict[str, int]()
        given: list[Array] = []
        for number in program.inputs:
            tensor = program.tensors[number]
            array = np.asarray(inputs[tensor.name], order="C")
            assert array.dtype == tensor.dtype, (tensor.name, array.dtype, tensor.dtype)
            for size, there in zip(tensor.shape, array.shape, strict=True):
                if isinstance(size, str):
                    dims.setdefault(size, there)
                assert evaluate(size, dims) == there, tensor
            given.append(array)
        for limit in program.limits:
            assert limit.low <= evaluate(limit.size, dims) <= limit.high, limit.because
        slots = [np.full(evaluate(size, dims), 0xAB, np.uint8) for size in program.slots]
        results: dict[int, Array] = {}
        scratch = np.full(evaluate(program.scratch, dims), 0xAB, np.uint8)

        def array_of(number: int) -> Array:
            tensor = program.tensors[number]
            shape, dtype = [evaluate(size, dims) for size in tensor.shape], np.dtype(tensor.dtype)
            if tensor.place == "input":
                return given[tensor.at].reshape(shape)
            if tensor.place == "weight":
                return self._weights[tensor.at].reshape(shape)
            if tensor.place == "scratch":
                return scratch
            if tensor.place == "arena":
                return slots[tensor.at][: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
            return results.setdefault(tensor.at, np.empty(shape, dtype)).reshape(shape)

        for step in program.steps:
            arrays = [array_of(number) for number in step.tensors]
            numbers = [evaluate(size, dims) for size in (*step.scalars, 0, step.items)]
            if step.error is not None:
                arrays[0][...] = 0
            if numbers[-1]:
                self.call(step.kernel, arrays, numbers)
            if step.error is not None and arrays[0].item():
                raise ValueError(step.error)
        return {program.tensors[number].name: array_of(number) for number in program.outputs}


def build_program(model: onnx.ModelProto | ir.Model | str | Path, cpu: str = "native") -> Program:
    """Return the program of a model for this computer, or for another processor whose programs it runs."""
    from softq.codegen.cpu.backend import CpuBackend
    from softq.codegen.cpu.machines import host
    from softq.compiler.pipeline import compile_model

    return compile_model(as_model(model), CpuBackend(host("cpu", cpu, "")))
