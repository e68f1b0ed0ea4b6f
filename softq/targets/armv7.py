"""32-bit Arm with Linux and hardware floating point.

Produces the folder of `softq build`: the kernels, a C driver, a shared library of both, the weights in a file of
their own, and a manifest. It runs with neither Python nor TVM: from C through `softq.h`, from Python through
`softq.load` where the processor is of this kind. Shapes may be dynamic. Kernels use NEON where the processor has it;
NEON makes subnormal float results zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.targets._contract import Built, Target, TargetOptions, option


@dataclass(frozen=True)
class Options(TargetOptions):
    """The processor."""

    mcpu: str = option("cortex-a7", "LLVM's name of the processor")
    features: str = option("", "LLVM's features beyond it: +name, several as +name+name")


def _build(model: ir.Model, options: TargetOptions) -> Built:
    from softq.codegen.cpu import machines
    from softq.compiler import pipeline

    assert isinstance(options, Options)
    return pipeline.build(model, machines.armv7("armv7", options.mcpu, options.features))


TARGET = Target(
    name="armv7",
    summary="32-bit Arm with Linux (NEON), cross-compiled.",
    produces="a folder with a shared library, its C driver, weights and manifest",
    needs="the extra softq[tvm] to build, nothing to run",
    passes=lambda: (),
    options=Options,
    build=_build,
)
