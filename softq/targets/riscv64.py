"""64-bit RISC-V with Linux (RV64GC).

Produces the folder of `softq build`: the kernels, a C driver, a shared library of both, the weights in a file of
their own, and a manifest. It runs with neither Python nor TVM: from C through `softq.h`, from Python through
`softq.load` where the processor is of this kind. Shapes may be dynamic. With features=+v kernels use vectors of 128
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.targets._contract import Built, Target, TargetOptions, option


@dataclass(frozen=True)
class Options(TargetOptions):
    """The processor."""

    mcpu: str = option("generic-rv64", "LLVM's name of the processor")
    features: str = option("+m+a+f+d+c", "LLVM's features beyond it: +name, several as +name+name; +v for vectors")


def _build(model: ir.Model, options: TargetOptions) -> Built:
    from softq.codegen.cpu import machines
    from softq.compiler import pipeline

    assert isinstance(options, Options)
    return pipeline.build(model, machines.riscv64("riscv64", options.mcpu, options.features))


TARGET = Target(
    name="riscv64",
    summary="64-bit RISC-V with Linux, with or without vectors, cross-compiled.",
    produces="a folder with a shared library, its C driver, weights and manifest",
    needs="the extra softq[tvm] to build, nothing to run",
    passes=lambda: (),
    options=Options,
    build=_build,
)
