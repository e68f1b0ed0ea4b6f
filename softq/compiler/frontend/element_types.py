"""Element types that TVM does not compute with, as built models hold them: integers with the same bits.

A tensor of such a type is one of integers in Relax; what its elements are is known by the value's name. Operators that
move elements need not know; Cast, CastLike, QuantizeLinear and DequantizeLinear do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from softq.artifact.abi import DTYPES
from softq.compiler.tir.small_floats import decode, encode
from softq.errors import RefusalError
from softq.graph.queries import ANY_TYPE

BITS: Mapping[str, int] = {
    "bfloat16": 16, "float8_e4m3fn": 8, "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8, "float4_e2m1fn": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2,
}  # fmt: skip
"""Widths of the types that are held as integers, by the names of ml_dtypes."""

CONVERSIONS = frozenset({"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"})
"""Operators from one type to another."""

PLAIN = frozenset(DTYPES) - set(BITS)
"""The types that TVM computes with."""


def held(dtype: str) -> str:
    """Return the type that a built model holds elements of a type in, by NumPy's name."""
    if dtype not in BITS:
        return dtype
    return dtype[:-1] + "8" if is_integer(dtype) else f"uint{max(BITS[dtype], 8)}"


HELD = frozenset({"uint8", "uint16", "int8"})
"""The types that `held` gives in place of others."""


def is_integer(dtype: str) -> bool:
    """Say whether elements are integers."""
    return dtype.startswith(("int", "uint"))


def held_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as a built model holds it."""
    name = array.dtype.name
    if name not in BITS:
        return array
    return array.astype(held(name)) if is_integer(name) else np.ascontiguousarray(array).view(held(name))


def low_bits(code: Any, dtype: str) -> Any:
    """Return an element whose other bits, in an integer of 8, are those that a built model has there."""
    unused = 8 - BITS[dtype]
    if dtype.startswith("int"):
        return (code << tirx.IntImm("int8", unused)) >> tirx.IntImm("int8", unused)
    return code & tirx.IntImm("uint8", 255 >> unused)


def clean(builder: relax.BlockBuilder, codes: relax.Expr, dtype: str) -> relax.Expr:
    """Return a tensor with what a built model has in the unused bits of its elements."""

    def cleaned(tensor: Any) -> Any:
        return te.compute(tensor.shape, lambda *at: low_bits(tensor(*at), dtype), name="cleaned")

    return builder.emit_te(cleaned, codes, primfunc_name_hint="clean")


def number(code: Any, dtype: str) -> Any:
    """Return an element of a type as a number that TVM computes with: float32 for the small floats."""
    return decode(dtype, code) if dtype in BITS and not is_integer(dtype) else code


def element(x: Any, source: str, dtype: str, saturate: bool = True, round_mode: str = "up") -> Any:
    """Return what Cast makes of a number that TVM computes with.

    Args:
        x: The number.
        source: Its type.
        dtype: The type to cast to; the result is as it is held.
        saturate: Cast's attribute, for floats of 8 bits.
        round_mode: The same, for E8M0.
    """
    if dtype not in BITS:
        return x.astype(dtype)
    if not is_integer(dtype):
        return encode(dtype, x.astype("float32"), saturate and dtype != "bfloat16", round_mode)
    # Higher bits are discarded; a float has a fraction to lose first.
    whole = x if source == "bool" or is_integer(source) else x.astype("int32")
    return low_bits(whole.astype(held(dtype)), dtype)


def cast(
    builder: relax.BlockBuilder, x: relax.Expr, source: str, dtype: str, saturate: bool = True, round_mode: str = "up"
) -> relax.Expr:
    """Return the tensor of what Cast makes of a tensor."""
    if source == dtype:
        return x

    def convert(tensor: Any) -> Any:
        plain = source if source not in BITS or is_integer(source) else "float32"
        return te.compute(
            tensor.shape,
            lambda *at: element(number(tensor(*at), source), plain, dtype, saturate, round_mode),
            name="cast",
        )

    return builder.emit_te(convert, x, primfunc_name_hint="cast")


def refuse_computing(operator: str, name: str, types: set[str], domain: str) -> None:
    """Refuse a node that computes with a type that only conversions and moves take.

    Raises:
        RefusalError: naming node and type.
    """
    if types and (domain not in ("", "ai.onnx") or operator not in ANY_TYPE | CONVERSIONS):
        raise RefusalError(
            f"{operator} {name!r} of {sorted(types)[0]}: built models move and convert such elements; "
            "Cast them to float or int8 first"
        )
