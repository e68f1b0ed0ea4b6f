"""Functions that texts may call, and names of variables."""

import re
from collections.abc import Container, Mapping

from softq.artifact.firmware.numbers import WORDS

MATH_H = frozenset(
    name + suffix
    for name in (
        "sqrt", "fabs", "floor", "ceil", "trunc", "round", "nearbyint", "exp", "exp2", "log", "log2", "log10", "pow",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "fma",
    )
    for suffix in ("", "f")
)  # fmt: skip
"""Functions of math.h for float64, and with f for float32."""

OF_MATH: Mapping[str, str] = {"llvm.sqrt": "sqrt", "llvm.fabs": "fabs", "llvm.fma": "fma"}
"""Those that are intrinsics of LLVM, which compilers know as instructions."""

OF_BITS: Mapping[str, str] = {"llvm.ctlz": "zeros_uint32"}
"""Intrinsics that are helpers (`prelude.helper`), of their first argument."""


def free_name(wanted: str, taken: Container[str]) -> str:
    """Return a name in C like the one that is wanted, which is not taken."""
    plain = re.sub(r"\W", "_", wanted) or "x"
    plain = plain if plain[0].isalpha() else f"x{plain}"
    name, number = plain, 0
    while name in taken or name in WORDS:
        number += 1
        name = f"{plain}_{number}"
    return name
