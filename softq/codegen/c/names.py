"""Functions that texts may call."""

from collections.abc import Mapping

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
