"""QuantizeLinear to 8 bits without its division, equal to the bit: y = saturate(round(x / scale) + zero point).

A division costs as much as ten multiplications, and whole models of 8 bits have one for each number between two
products. With r the reciprocal of a constant scale, rounded, q = x r is within 1.5 units in the last place of the
quotient, and one step of Newton's with multiply-adds, q + r (x - q scale), rounds it as a division does (P. Markstein,
Computation of elementary functions on the IBM RISC System/6000, 1990). That holds without underflow and overflow, and
is proven for a q within one unit; so numbers are brought into the range of the codes first, and before a scale is
taken this way every x around every boundary between two codes is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import te, tirx

from softq.artifact.machine import Machine
from softq.compiler.legalize.min_max import Expr, Legalize

_OPERATOR = "relax.quantize"
_WINDOW = 32
"""Floats at either side of a boundary that are tried: far more than the units that q may be off."""

_LEAST, _MOST = 2.0**-96, 2.0**96
"""Scales whose products with codes, and whose residuals, are normal numbers."""

_INTEGERS_FROM = 1.5 * 2.0**23
"""Added to a float below 2^22 it leaves the nearest integer, ties to even, in the low bits."""


def legalize(machine: Machine) -> Mapping[str, Legalize]:
    """Return what TVM's `LegalizeOps` takes for a machine."""
    return {_OPERATOR: _legalize} if machine.fused else {}


def _legalize(builder: Any, call: Any) -> Any:
    data, scale, zero = call.args
    dtype = str(call.attrs.out_dtype)
    numbers = _scalar(scale), _scalar(zero)
    if str(data.ty.dtype) == "float32" and dtype in ("int8", "uint8") and None not in numbers:
        s, z = np.float32(numbers[0]), int(numbers[1])
        low, high = int(np.iinfo(dtype).min) - z, int(np.iinfo(dtype).max) - z

        def quantize(x: Any) -> Any:
            return te.compute(x.shape, lambda *at: _code(x[at], s, low, high, z, dtype), name="quantized")

        if is_exact(float(s), low, high):
            return builder.call_te(quantize, data, primfunc_name_hint="quantize")
    return tvm.ir.Op.get(_OPERATOR).get_attr("FLegalize")(builder, call)


def _scalar(x: Any) -> float | None:
    if not isinstance(x, tvm.ir.GenericConst):
        return None
    array = x.value.numpy()
    return float(array.reshape(())) if array.size == 1 else None


def _f(x: np.float32) -> Expr:
    return tirx.FloatImm("float32", float(x))


def _code(x: Expr, scale: np.float32, low: int, high: int, zero: int, dtype: str) -> Expr:
    """Return the code of one number. NaN has the greatest one, as in TVM's form."""
    first, last, inverse = _f(low * scale), _f(high * scale), _f(np.float32(1) / scale)
    near, quotient, rest = (tirx.Var(name, "float32") for name in ("near", "quotient", "rest"))
    exact = _is_power_of_two(scale)
    refined = quotient if exact else _fused(rest, inverse, quotient)
    # The integer stands in the low bits; those above are gone in 8 bits.
    bits = tirx.reinterpret("int32", refined + tirx.FloatImm("float32", _INTEGERS_FROM))
    result: Expr = (bits + tirx.IntImm("int32", zero)).astype(dtype)
    if not exact:
        result = tirx.Let(rest, _fused(quotient, _f(-scale), near), result)
    result = tirx.Let(quotient, near * inverse, result)
    # Not as selections: time for code grows by a factor of a hundred with each code that another is made from.
    return tirx.Let(near, tirx.Max(tirx.Min(x, last), first), result)


def _is_power_of_two(scale: np.float32) -> bool:
    return float(np.frexp(scale)[0]) == 0.5


def _fused(a: Expr, b: Expr, c: Expr) -> Expr:
    return tirx.call_llvm_pure_intrin("float32", "llvm.fma", a, b, c)


@lru_cache(maxsize=4096)
def is_exact(scale: float, low: int, high: int, inverse: float | None = None) -> bool:
    """Say whether the codes of all numbers are those of the division.

    Args:
        scale: The scale, a float32.
        low: The least code without the zero point.
        high: The greatest one.
        inverse: What to multiply with; by default the reciprocal.
    """
    s = np.float32(scale)
    if not _LEAST <= s <= _MOST:
        return False
    r = np.float32(1) / s if inverse is None else np.float32(inverse)
    boundaries = ((np.arange(low, high) + 0.5) * np.float64(s)).astype(np.float32)
    around = np.arange(-_WINDOW, _WINDOW + 1, dtype=np.int32)
    x = (boundaries.view(np.int32)[:, None] + around).view(np.float32)
    quotient = x * r
    refined = fused(fused(quotient, -s, x), r, quotient)
    return bool((np.rint(refined) == np.rint(x / s)).all())


def fused(a: NDArray[np.float32], b: np.float32, c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a b + c, rounded once.

    The product is exact in float64; its sum with c is rounded to odd there, so that the second rounding sees whether
    anything was lost (S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    product, c64 = a.astype(np.float64) * np.float64(b), c.astype(np.float64)
    total = product + c64
    part = total - product
    lost = (product - (total - part)) + (c64 - part)
    to_odd = (lost != 0) & (total.view(np.int64) % 2 == 0)
    return np.where(to_odd, np.nextafter(total, np.copysign(np.inf, lost)), total).astype(np.float32)
