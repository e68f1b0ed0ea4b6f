"""From a model to a program for a GPU: softq's kernels in place, TVM's for the rest."""

from __future__ import annotations

import re

import onnx_ir as ir

from softq.artifact.device.steps import DeviceProgram
from softq.artifact.machine import Gpu
from softq.codegen.gpu.backend import GRAPH, ROWS, GpuBackend
from softq.codegen.gpu.dialect.dialects import Dialect
from softq.compiler.pipeline import compile_model

_SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
"""Most shared memory of a block by compute capability, for those who ask for it (CUDA C++ Programming Guide, compute
capabilities, "maximum amount of shared memory per thread block"). There is 1 KiB more on a multiprocessor."""

_EVERYWHERE_KIB = 48
"""What every architecture gives a block (the guide: more than that has to be asked for, an architecture at a time)."""


def _shared_bytes(arch: str) -> int:
    """Return the most shared memory that a block may have on an architecture such as `sm_90`.

    A device that is not as large takes the same code: the drivers start what fits the device that they find.
    """
    found = re.fullmatch(r"sm_(\d+)\w?", arch)
    assert found is not None, arch
    return _SHARED_KIB.get(int(found[1]), _EVERYWHERE_KIB) << 10


def machine_of(arch: str) -> Gpu:
    """Return the description of a GPU of NVIDIA of an architecture such as `sm_90`."""
    return Gpu(name="cuda", triple="nvptx64-nvidia-cuda", cpu=arch, shared_bytes=_shared_bytes(arch))


def device_program(model: ir.Model, machine: Gpu, dialect: Dialect) -> DeviceProgram:
    """Return the program of a model as text in a language; the model is not changed."""
    backend = GpuBackend(machine, dialect)
    program = compile_model(model, backend)
    assert not program.scratch  # A thread of a GPU has no memory of its own.
    sources = {ROWS: backend.text(), GRAPH: backend.graph()}
    return DeviceProgram(program, backend.launches(), {name: text for name, text in sources.items() if text})
