"""Building the library of operators that comes with softq."""

from __future__ import annotations

import os
from pathlib import Path

from softq.artifact.operators.writing import write_operators
from softq.codegen.cpu.machines import OPERATOR_FAMILIES
from softq.codegen.cpu.operator_levels import compile_levels
from softq.prebuilt.functions import functions


def build_library(out: str | os.PathLike[str], family: str, *, slim: bool = False) -> Path:
    """Write the library of a family of processors with its manifest; return the folder.

    The same softq, TVM and compiler write the same bytes.

    Args:
        out: The folder; its parent must exist.
        family: Name of the family, one of `OPERATOR_FAMILIES`.
        slim: Leave source and kernels out, as wheels do.

    Raises:
        UsageError: there is no C compiler for the family.
    """
    machines = OPERATOR_FAMILIES[family].machines("onnxruntime")
    library = compile_levels(functions(), machines)
    return write_operators(library, machines[-1], out, target=f"onnxruntime,family={family}", slim=slim)
