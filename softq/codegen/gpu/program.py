"""From a model to a program for a GPU: softq's kernels in place, TVM's for the rest."""

from __future__ import annotations

import onnx_ir as ir

from softq.artifact.device.steps import DeviceProgram
from softq.artifact.machine import Gpu
from softq.codegen.gpu.backend import GRAPH, ROWS, GpuBackend
from softq.codegen.gpu.dialect.architectures import shared_bytes
from softq.codegen.gpu.dialect.dialects import Dialect
from softq.compiler.pipeline import compile_model


def machine_of(arch: str) -> Gpu:
    """Return the description of a GPU of NVIDIA of an architecture such as `sm_90`."""
    return Gpu(name="cuda", triple="nvptx64-nvidia-cuda", cpu=arch, shared_bytes=shared_bytes(arch))


def device_program(model: ir.Model, machine: Gpu, dialect: Dialect) -> DeviceProgram:
    """Return the program of a model as text in a language; the model is not changed."""
    backend = GpuBackend(machine, dialect)
    program = compile_model(model, backend)
    assert not program.scratch  # A thread of a GPU has no memory of its own.
    sources = {ROWS: backend.text(), GRAPH: backend.graph()}
    return DeviceProgram(program, backend.launches(), {name: text for name, text in sources.items() if text})
