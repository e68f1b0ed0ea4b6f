"""Microcontrollers: C that drops into a project, for one processor; one target for each family.

Each produces the folder of `softq build`: NAME.h, what a project includes; NAME.c, which runs the model; its kernels
and its weights; and a manifest, which has the options for the compiler. There is no heap, no file, no thread and no
library but that of math.h: a run takes one block of memory whose size is known, of its own or of the caller's. All
symbols begin with the name, so that several models link together. Shapes are fixed. Where the processor has a unit for
floats, sums of products are rounded once.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import TYPE_CHECKING

from softq.codegen.c.machines import FAMILIES, KERNELS, Family
from softq.targets._contract import BuiltFirmware, Target, TargetOptions
from softq.text_options import option

if TYPE_CHECKING:
    import onnx_ir as ir


def build_for(family: Family, model: ir.Model, options: TargetOptions) -> BuiltFirmware:
    """Return a converted model in C for a processor of a family."""
    from softq.codegen.c.backend import firmware

    chosen = options.settings()
    machine = family.machine(chosen["cpu"], chosen["fpu"], chosen["kernels"])
    return BuiltFirmware(firmware(model, machine), machine, chosen["name"])


def _target(family: Family) -> Target:
    units = sorted({unit for core in family.cores.values() for unit in core.floats})
    fields = [
        ("cpu", str, option(family.default, f"the processor: {', '.join(family.cores)}")),
        ("fpu", str, option("", f"its unit for floats: none, {', '.join(units)}; by default what it usually has")),
        ("kernels", str, option("", f"their form: {', '.join(KERNELS)}; object where there are vectors, by default")),
        ("name", str, option("", "what files and symbols begin with; the name of the folder by default")),
    ]
    return Target(
        name=family.name,
        summary=family.summary,
        produces="a folder with a header, C files of the model, its kernels and its weights, and a manifest",
        needs="the extra softq[tvm] to build, a compiler of C to use it",
        passes=lambda: (),
        options=make_dataclass("Options", fields, bases=(TargetOptions,), frozen=True),
        build=lambda model, options: build_for(family, model, options),
    )


TARGETS = tuple(map(_target, FAMILIES))
