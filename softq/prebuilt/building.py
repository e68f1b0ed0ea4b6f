"""Building the library of operators that comes with softq."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from softq.artifact.operators.writing import write_operators
from softq.codegen.cpu.machines import AARCH64, X86_64
from softq.codegen.cpu.operator_levels import MachineLevel, compile_levels
from softq.prebuilt.functions import functions

LEVELS: Mapping[str, Sequence[tuple[str, str, bool, bool]]] = {
    X86_64.name: (
        ("x86-64-v4", "+avx512vnni+avx512vbmi", True, False),
        ("x86-64-v4", "+avx512vnni", False, True),
        ("x86-64-v3", "", True, True),
    ),
    AARCH64.name: ((AARCH64.cpu, "", True, True),),
}
"""Of each family of processors the levels: LLVM's processor, its features beyond that, `MachineLevel.fast`, `.small`.

What has AVX-512 with VNNI and no VBMI is one generation of servers, for which there are small kernels alone. Rows have
no use for products of bytes on 64-bit Arm (dotprod).
"""


def levels_of(family: str) -> list[MachineLevel]:
    """Return the levels of a family of processors, the one with the most features first."""
    made = next(each for each in (X86_64, AARCH64) if each.name == family).machine
    return [MachineLevel(made("onnxruntime", cpu, more), fast, small) for cpu, more, fast, small in LEVELS[family]]


def build_library(out: str | os.PathLike[str], family: str, *, slim: bool = False) -> Path:
    """Write the library of a family of processors with its manifest; return the folder.

    The same softq, TVM and compiler write the same bytes.

    Args:
        out: The folder; its parent must exist.
        family: Name of the family, one of `LEVELS`.
        slim: Leave source and kernels out, as wheels do.

    Raises:
        UsageError: there is no C compiler for the family.
    """
    levels = levels_of(family)
    library = compile_levels(functions(), levels)
    return write_operators(library, levels[-1].machine, out, target=f"onnxruntime,family={family}", slim=slim)
