"""From a model to a program for a GPU: softq's kernels in place, TVM's for the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from softq.artifact.device.compiling import compiler, machine_code
from softq.artifact.device.steps import DeviceProgram
from softq.artifact.machine import Machine
from softq.artifact.toolchain import host_architecture
from softq.codegen.cpu import machines
from softq.codegen.gpu.backend import GRAPH, ROWS, GpuKernels
from softq.codegen.gpu.dialect.dialects import CUDA, Dialect
from softq.codegen.gpu.gemm.lowering import KINDS
from softq.compiler.frontend.importer import Offered
from softq.compiler.lowering.lower import lower
from softq.compiler.pipeline import imported
from softq.passes.move_integers import MoveIntegers
from softq.passes.multiply_integers import MultiplyIntegers
from softq.passes.split_products import SplitProducts
from softq.targets._contract import Built


def build(model: ir.Model, arch: str, form: str, host: str = "") -> Built:
    """Return the program of a converted model for a GPU of NVIDIA, compiled if there is a compiler.

    Args:
        model: The model; it is not changed.
        arch: The architecture, such as `sm_90`.
        form: What to compile to: `cubin`, or `ptx`, which newer devices take too.
        host: The processor of the library in C, `x86_64` or `aarch64`; by default this computer's.
    """
    machine = machine_of(arch)
    device = device_program(model, machine, CUDA)
    code: Mapping[str, bytes] = {}
    if compiler():
        code = {name: machine_code(text, arch, ptx=form == "ptx") for name, text in device.sources.items()}
    whole = dataclasses.replace(device, code=code, form=form, host=host_of(host))
    return Built(device.program, machine, whole)


def host_of(family: str) -> Machine | None:
    """Return the processor of a library in C, any of its family; None if this computer's has none."""
    match family or host_architecture():
        case "x86_64":
            return machines.x86_64("cuda", "x86-64", "")
        case "aarch64":
            return machines.aarch64("cuda", "generic", "")
        case _:
            return None


def machine_of(arch: str) -> Machine:
    """Return the description of a GPU: no vectors, a thread an element."""
    return Machine("cuda", "nvptx64-nvidia-cuda", arch, (), "", 0, 16, single_items=True)


def device_program(model: ir.Model, machine: Machine, dialect: Dialect) -> DeviceProgram:
    """Return the program of a model as text in a language."""
    kernels = GpuKernels(machine, dialect)
    # A thread of a GPU has no memory for blocks.
    offered = Offered(products=tuple(KINDS), convolutions=False)
    program = lower(imported(model, MoveIntegers(), MultiplyIntegers(), SplitProducts(), offered=offered), kernels)
    assert not program.scratch
    sources = {ROWS: kernels.text(), GRAPH: kernels.graph()}
    return DeviceProgram(program, kernels.launches(), {name: text for name, text in sources.items() if text})
