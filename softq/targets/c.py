"""Any processor with a compiler of C: portable C99 that drops into a project.

Produces the folder of `softq build`: NAME.h, what a project includes; NAME.c, which runs the model; its kernels and
its weights; and a manifest. There is no heap, no file, no thread and no library but that of math.h: a run takes one
block of memory whose size is known, of its own or of the caller's. All symbols begin with the name, so that several
models link together. Shapes are fixed. Integers are equal to the bit whoever compiles it.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.targets._contract import BuiltFirmware, Target, TargetOptions
from softq.text_options import option


@dataclass(frozen=True)
class Options(TargetOptions):
    """What files and symbols are called."""

    name: str = option("", "what files and symbols begin with; the name of the folder by default")


def _build(model: ir.Model, options: TargetOptions) -> BuiltFirmware:
    from softq.codegen.c.backend import firmware
    from softq.codegen.c.machines import portable

    assert isinstance(options, Options)
    machine = portable("c")
    return BuiltFirmware(firmware(model, machine), machine, options.name)


TARGET = Target(
    name="c",
    summary="Any processor: portable C99 without heap, files and threads.",
    produces="a folder with a header, C files of the model, its kernels and its weights, and a manifest",
    needs="the extra softq[tvm] to build, a compiler of C to use it",
    passes=lambda: (),
    options=Options,
    build=_build,
)
