"""The processor that softq runs on, x86-64 or 64-bit Arm with Linux.

Produces the folder of `softq build`: the kernels, a C driver, a shared library of both, the weights in a file of
their own, and a manifest. It runs with neither Python nor TVM: from C through `softq.h`, from Python through
`softq.load` where the processor is of this kind. Shapes may be dynamic. It refuses to run on a processor that lacks a
feature that the kernels use.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from softq.targets._contract import Built, Target, TargetOptions
from softq.text_options import option

if TYPE_CHECKING:
    from softq.runner import Written


@dataclass(frozen=True)
class Options(TargetOptions):
    """The processor."""

    mcpu: str = option("native", "LLVM's name of the processor; native is this computer's")
    features: str = option("", "LLVM's features beyond it: +name, several as +name+name")


def _build(model: ir.Model, options: TargetOptions) -> Built:
    from softq.codegen.cpu.backend import CpuBackend
    from softq.codegen.cpu.machines import host
    from softq.compiler.pipeline import compile_model

    assert isinstance(options, Options)
    machine = host("cpu", options.mcpu, options.features)
    return Built(compile_model(model, CpuBackend(machine)), machine)


def _open(model: Path, folder: Path, threads: int | None) -> Written:
    from softq.artifact import load, manifest
    from softq.runner import Written

    size = sum((folder / name).stat().st_size for name in manifest.LOADED)
    artifact = load(folder, threads or len(os.sched_getaffinity(0)))
    return Written(artifact, size, close=artifact.close)


TARGET = Target(
    name="cpu",
    summary="This computer's processor: compiled kernels, a C driver, no Python or TVM to run.",
    produces="a folder with a shared library, its C driver, weights and manifest",
    needs="the extra softq[tvm] to build, nothing to run",
    passes=lambda: (),
    options=Options,
    build=_build,
    open=_open,
)
