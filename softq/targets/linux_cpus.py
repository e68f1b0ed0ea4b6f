"""Processors with Linux, cross-compiled: one target for each family of `softq.codegen.cpu.machines`.

Each produces the folder of `softq build`: the kernels, a C driver, a shared library of both, the weights in a file of
their own, and a manifest. It runs with neither Python nor TVM: from C through `softq.h`, from Python through
`softq.load` where the processor is of this kind. Shapes may be dynamic. Kernels use vectors where the processor has
them; a processor that lacks a feature that the kernels use is refused when the artifact is opened. On 32-bit Arm NEON
makes subnormal float results zero.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import TYPE_CHECKING

from softq.codegen.cpu.machines import FAMILIES, Family
from softq.targets._contract import Built, Target, TargetOptions
from softq.text_options import option

if TYPE_CHECKING:
    import onnx_ir as ir


def build_for(family: Family, model: ir.Model, options: TargetOptions) -> Built:
    """Return the program of a converted model for a processor of a family."""
    from softq.codegen.cpu.backend import CpuBackend
    from softq.compiler.pipeline import compile_model

    chosen = options.settings()
    machine = family.machine(family.name, chosen["mcpu"], chosen["features"])
    return Built(compile_model(model, CpuBackend(machine)), machine)


def _target(family: Family) -> Target:
    fields = [
        ("mcpu", str, option(family.cpu, "LLVM's name of the processor")),
        (
            "features",
            str,
            option(family.features, f"LLVM's features beyond it: +name, several as +name+name{family.hint}"),
        ),
    ]
    return Target(
        name=family.name,
        summary=family.summary,
        produces="a folder with a shared library, its C driver, weights and manifest",
        needs="the extra softq[tvm] to build, nothing to run",
        passes=lambda: (),
        options=make_dataclass("Options", fields, bases=(TargetOptions,), frozen=True),
        build=lambda model, options: build_for(family, model, options),
    )


TARGETS = tuple(map(_target, FAMILIES))
