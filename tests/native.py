"""Running a model through TVM in a test: import, lowering, code generation, and a plain executor of the step list."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from softq.artifact.program import Program, Step, evaluate
from softq.modelfile import as_model

Array = NDArray[np.generic]

GUARD = 64
"""Bytes around each piece of memory that no kernel may write, and between the parts of an attention's scratch."""
_NOISE = 0xAB

Parts = Callable[[Step, Mapping[str, int]], list[tuple[int, int]]]
"""Gives where the parts of a step's scratch begin and end, for the lengths of a run."""


class Memory:
    """A piece of memory filled with noise, between guard bytes."""

    def __init__(self, size: int) -> None:
        self._whole = np.full(size + 2 * GUARD, _NOISE, np.uint8)
        self.bytes = self._whole[GUARD : GUARD + size]

    def check(self, what: str) -> None:
        """Fail if a guard byte was written."""
        guards = np.concatenate([self._whole[:GUARD], self._whole[len(self._whole) - GUARD :]])
        assert (guards == _NOISE).all(), f"{what} wrote outside its memory"


@contextmanager
def guarded_attentions() -> Generator[Parts]:
    """Let attentions that are lowered inside have guard bytes in their scratch; give where its parts lie."""
    from softq.codegen.cpu.attention import form
    from softq.codegen.cpu.kernels import CpuKernels

    forms: dict[str, Any] = {}
    add = CpuKernels.attention

    def record(kernels: CpuKernels, made: Any) -> str:
        symbol = add(kernels, made)
        forms[symbol] = form.lay_out(made), made.sizes
        return symbol

    def parts(step: Step, dims: Mapping[str, int]) -> list[tuple[int, int]]:
        if step.kernel not in forms:
            return []
        layout, names = forms[step.kernel]
        sizes = {n: evaluate(size, dims) for n, size in zip(names, step.scalars, strict=False)}
        return sorted((evaluate(start, sizes), evaluate(end, sizes)) for start, end in layout.parts.values())

    with mock.patch.object(form, "GUARD", GUARD), mock.patch.object(CpuKernels, "attention", record):
        yield parts


@dataclass(frozen=True)
class GuardedProgram(Program):
    """A program with guard bytes in the scratch of its attentions, and where the parts of that lie."""

    parts: Parts = lambda *_: []


class Executor:
    """A built program in Python: the same steps as the driver's, one after another, memory filled with noise first.

    After each step the guard bytes around its memory are checked, and those between the parts of its scratch.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._parts: Parts = program.parts if isinstance(program, GuardedProgram) else lambda *_: []
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
        slots = [Memory(evaluate(size, dims)) for size in program.slots]
        results: dict[int, Memory] = {}
        scratch = Memory(evaluate(program.scratch, dims))

        def array_of(number: int) -> Array:
            tensor = program.tensors[number]
            shape, dtype = [evaluate(size, dims) for size in tensor.shape], np.dtype(tensor.dtype)
            if tensor.place == "input":
                return given[tensor.at].reshape(shape)
            if tensor.place == "weight":
                return self._weights[tensor.at].reshape(shape)
            if tensor.place == "scratch":
                return scratch.bytes
            size = int(np.prod(shape)) * dtype.itemsize
            if tensor.place == "arena":
                return slots[tensor.at].bytes[:size].view(dtype).reshape(shape)
            if tensor.at not in results:
                results[tensor.at] = Memory(size)
            return results[tensor.at].bytes.view(dtype).reshape(shape)

        for step in program.steps:
            arrays = [array_of(number) for number in step.tensors]
            numbers = [evaluate(size, dims) for size in (*step.scalars, 0, step.items)]
            if step.error is not None:
                arrays[0][...] = 0
            parts = self._parts(step, dims)
            if parts:
                scratch.bytes[:] = _NOISE
            if numbers[-1]:
                self.call(step.kernel, arrays, numbers)
            for memory in (scratch, *slots, *results.values()):
                memory.check(step.kernel)
            for (_, end), (start, _) in itertools.pairwise([*parts, (len(scratch.bytes), 0)]):
                assert (scratch.bytes[end:start] == _NOISE).all(), f"{step.kernel} wrote between parts of its scratch"
            if step.error is not None and arrays[0].item():
                raise ValueError(step.error)
        return {program.tensors[number].name: array_of(number) for number in program.outputs}


def build_program(model: onnx.ModelProto | ir.Model | str | Path, cpu: str = "native") -> GuardedProgram:
    """Return the program of a model for this computer, or for another processor whose programs it runs.

    The scratch of its attentions has guard bytes.
    """
    from softq.codegen.cpu.backend import CpuBackend
    from softq.codegen.cpu.machines import host
    from softq.compiler.pipeline import compile_model

    with guarded_attentions() as parts:
        program = compile_model(as_model(model), CpuBackend(host("cpu", cpu, "")))
    return GuardedProgram(**vars(program), parts=parts)
