"""GPUs of NVIDIA.

Produces a folder: the kernels as CUDA C++ (`kernels.cu` are softq's, `graph.cu` TVM's for the rest of the model),
compiled to a cubin or PTX if nvcc or NVRTC is there, the list of their launches, a driver in C and a shared library of
it (`softq.h`), the weights and a manifest. Building needs no GPU; running needs one, and its driver alone: the library,
`softq.load` and `softq run` speak to it directly. Shapes may be dynamic.

A softmax is one kernel, in a form for each range of row lengths. Products are softq's: of float16 on tensor cores, of
float32 and, by dp4a, of 8-bit integers on ordinary ones, those of dequantized codes among the last; a form for up to
eight rows reads the weights once, and what follows element by element is done before the result is written. A norm is
one kernel with a block a row. An attention of float32 whose softmax takes two passes over the row is one kernel that
writes no scores to memory, and so is one of float16 with `deferred-log`, on tensor cores. None of it has run on a GPU
yet: its logic is tested as OpenCL on a processor.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from softq.artifact.machine import Cpu
from softq.artifact.toolchain import host_architecture
from softq.codegen.cpu.machines import AARCH64, X86_64
from softq.errors import UsageError
from softq.targets._contract import Built, Target, TargetOptions
from softq.text_options import option


@dataclass(frozen=True)
class Options(TargetOptions):
    """The GPU."""

    arch: str = option("sm_80", "the architecture, sm_75 and later; code for it runs on it and its minor successors")
    code: str = option("cubin", "what nvcc makes: cubin, or ptx, which the driver of any newer GPU compiles")
    host: str = option("", "the processor of the C library, x86_64 or aarch64; this computer's by default")


def _build(model: ir.Model, options: TargetOptions) -> Built:
    assert isinstance(options, Options)
    found = re.fullmatch(r"sm_(\d+)a?", options.arch)
    if found is None or int(found[1]) < 75:
        raise UsageError(f"arch is {options.arch!r}; expected sm_75 or later, such as sm_90")
    if options.code not in ("cubin", "ptx"):
        raise UsageError(f"code is {options.code!r}; expected cubin or ptx")
    if options.host not in ("", "x86_64", "aarch64"):
        raise UsageError(f"host is {options.host!r}; expected x86_64 or aarch64")
    from softq.artifact.device.compiling import compiler, machine_code
    from softq.codegen.gpu.dialect.dialects import CUDA
    from softq.codegen.gpu.program import device_program, machine_of

    machine = machine_of(options.arch)
    device = device_program(model, machine, CUDA)
    code: Mapping[str, bytes] = {}
    if compiler():
        ptx = options.code == "ptx"
        code = {name: machine_code(text, options.arch, ptx=ptx) for name, text in device.sources.items()}
    whole = dataclasses.replace(device, code=code, form=options.code, host=_host(options.host))
    return Built(device.program, machine, whole)


def _host(architecture: str) -> Cpu | None:
    """Return the processor of the library in C, any of its family; None if this computer's has none."""
    match architecture or host_architecture():
        case "x86_64":
            return X86_64.machine("cuda", "x86-64", "")
        case "aarch64":
            return AARCH64.machine("cuda", "generic", "")
        case _:
            return None


TARGET = Target(
    name="cuda",
    summary="NVIDIA's GPUs from sm_75 on; built without one, not yet run on one.",
    produces="a folder with CUDA sources and their code, the launches, a shared library, its C driver and weights",
    needs="the extra softq[tvm] to build, nvcc or NVRTC (softq[cuda]) to compile, a GPU and its driver to run",
    passes=lambda: (),
    options=Options,
    build=_build,
)
