"""Names of kernels."""

from __future__ import annotations

import re
from collections.abc import Container

from softq.compiler.steps.tir_kernels import PREFIX
from softq.rowprog import Program
from softq.rowprog.onnx import function_name


def row_symbol(program: Program, taken: Container[str]) -> str:
    """Return the symbol of a row program's kernel, another one than those that are taken."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", function_name(program)).lower()
    symbol = PREFIX + re.sub(r"\W", "_", words)
    while symbol in taken:
        symbol += "_"
    return symbol
