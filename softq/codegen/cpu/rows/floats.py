"""Float operators that are more than one instruction, without the C library."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import rounded
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.float_bits import WORD, magnitude, magnitude_of
from softq.codegen.cpu.rows.tir import (
    F32,
    F64,
    bits_of,
    cast,
    fence,
    intrinsic,
    is_signed,
    reinterpret,
    vector_of,
)
from softq.rowprog.library import EXP_LIMIT, LN2_HIGH, LN2_LOW, LOG2_E
from softq.rowprog.program import Node, number_of

_INTEGERS_FROM = 2.0**23
"""From here on every f32 is an integer."""


def rint(e: Emission, node: Node) -> Expr:
    """Return the nearest integer, half to even."""
    x = e.operand(node, 0)
    if e.processor.rounds:
        return intrinsic("llvm.roundeven", F32, e.lanes, x)
    # The sum with 2^23 has no bits for a fraction. The sign is put back by choosing the summand's.
    zero = e.const(0.0, F32)
    magic = e.share(tirx.Select(tirx.LT(x, zero), e.const(-_INTEGERS_FROM, F32), e.const(_INTEGERS_FROM, F32)), F32)
    rounded = tirx.Sub(fence(tirx.Add(x, magic), F32, e.lanes), magic)
    small = tirx.And(
        tirx.LT(x, e.const(_INTEGERS_FROM, F32)), tirx.LT(e.const(-_INTEGERS_FROM, F32), x)
    )  # not of a NaN, which stays
    return tirx.Select(small, rounded, x)


def exp2i(e: Emission, node: Node) -> Expr:
    """Return 2^n by its exponent bits."""
    n = e.operand(node, 0, "int32")
    bits = script.shift_left(tirx.Add(n, e.const(127, "int32")), e.const(23, "int32"))
    return reinterpret(bits, F32, e.lanes)


def sqrt(e: Emission, node: Node) -> Expr:
    """Return the square root: an instruction everywhere."""
    return intrinsic("llvm.sqrt", F32, e.lanes, e.operand(node, 0))


# e^r = 1 + r + r^2 q(r): q levels the relative error, 1.05e-7 before rounding, on |r| <= ln(2) / 2 * (1 + 2^-12)
# (Remez' algorithm, in 40 digits).
_EXP_Q = tuple(float.fromhex(c) for c in ("0x1.fffdfcp-2", "0x1.5557aep-3", "0x1.572a28p-5", "0x1.10626ap-7"))
_MAGIC = 1.5 * 2.0**23
"""A number of up to 22 bits added to it is rounded to an integer, which its own low bits then hold."""


# e^r = 1 + r (a + b r) for |r| <= ln(2) / 64 * (1 + 2^-12): relative error 5.5e-8 before rounding.
_EXP_NEAR = (1.0 + 1.5e-5, 0.50001)
_PARTS = 32
"""Parts of an octave that two registers of 16 floats hold."""

_LN2_PART_HIGH = float(Fraction(round(Fraction(math.log(2) / _PARTS) * 2**17), 2**17))
"""ln(2) / 32 to 12 significant bits: its product with a number of parts below 2^12 is exact."""

_LN2_PART_LOW = math.log(2) / _PARTS - _LN2_PART_HIGH


def exp_minus(e: Emission, node: Node) -> Expr:
    """Return e^-d for d >= 0, 0 beyond `EXP_LIMIT`; NaN there gives 0 too.

    Relative error below 1.95e-7, with multiply-add in one rounding or two. The integer that is nearest to d / ln 2
    stands in the low bits of a sum, and is added to the exponent of the polynomial: no conversion, no clamp, and one
    comparison for what is beyond the limit. Scalar code of LLVM takes what the program says.
    """
    if e.lanes == 1 and not e.processor.machine.in_c:
        return e.operand(node, 1)
    if e.processor.is_x86 and e.lanes == 16 and e.processor.machine.vector_bytes == 64:
        return _exp_of_parts(e, node)
    d, whole, r = _divided(e, node, LOG2_E, LN2_HIGH, LN2_LOW)
    p = e.const(_EXP_Q[-1], F32)
    for c in (*reversed(_EXP_Q[:-1]), 1.0, 1.0):
        p = tirx.Add(tirx.Mul(p, r), e.const(c, F32))
    power = script.shift_left(whole, e.const(23, "int32"))
    bits = tirx.Add(reinterpret(p, "int32", e.lanes), power)
    # Chosen among integers, where the choice is a mask of the addition.
    near = tirx.LE(d, e.const(EXP_LIMIT, F32))
    if e.processor.calls_for_floats:
        near = tirx.LE(magnitude(e, d), e.const(magnitude_of(EXP_LIMIT), WORD))
    chosen = tirx.Select(near, bits, e.const(0, "int32"))
    return reinterpret(e.share(chosen, "int32"), F32, e.lanes)


def _divided(e: Emission, node: Node, parts: float, high: float, low: float) -> tuple[Expr, Expr, Expr]:
    """Return d, a number whose low bits are the integer nearest to -d * parts, and -d less so many times high + low."""
    d, magic = e.operand(node, 0), e.const(_MAGIC, F32)
    scaled = tirx.Mul(d, e.const(-parts, F32))
    if e.processor.has_mve:
        # Two instructions, and no constants.
        n = e.share(intrinsic("llvm.roundeven", F32, e.lanes, scaled), F32)
        whole = cast(n, F32, "int32", e.lanes)
    else:
        sum_ = e.share(tirx.Add(scaled, magic), F32)
        n, whole = e.share(tirx.Sub(sum_, magic), F32), reinterpret(sum_, "int32", e.lanes)
    rest = e.share(tirx.Sub(tirx.Mul(n, e.const(-high, F32)), d), F32)
    return d, whole, e.share(tirx.Add(tirx.Mul(n, e.const(-low, F32)), rest), F32)


def _exp_of_parts(e: Emission, node: Node) -> Expr:
    """Return `exp_minus` by parts of an octave, powers of two that a permute of two registers gives: 6 products, not 9.

    The low bits of the sum choose the part, those above it are the exponent; what the lowest bits of the exponent's
    addition leave in the mantissa is taken off the entries beforehand.
    """
    d, bits, r = _divided(e, node, LOG2_E * _PARTS, _LN2_PART_HIGH, _LN2_PART_LOW)
    shift = 23 - _PARTS.bit_length() + 1
    powers = np.exp2(np.arange(_PARTS) / _PARTS).astype(np.float32).view(np.int32) - (np.arange(_PARTS) << shift)
    low, upper = (vector_of(part.tolist(), "int32") for part in np.split(powers, 2))
    entry = intrinsic("llvm.x86.avx512.vpermi2var.d.512", "int32", e.lanes, low, bits, upper)
    power = tirx.Add(entry, script.shift_left(bits, e.const(shift, "int32")))
    whole = e.share(reinterpret(power, F32, e.lanes), F32)
    near, far = (e.const(c, F32) for c in _EXP_NEAR)
    p = e.share(tirx.Mul(tirx.Add(tirx.Mul(far, r), near), r), F32)
    x = e.share(tirx.Add(tirx.Mul(whole, p), whole), F32)
    return tirx.Select(tirx.LE(d, e.const(EXP_LIMIT, F32)), x, e.const(0.0, F32))


# Minimax polynomial of (log(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1], as in Cephes' logf
# (public domain): relative error of the logarithm below 2^-24.
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_SQRT_HALF_BITS = 0x3F3504F3
_LOG2_E_REST = math.log2(math.e) - 1


def log2(e: Emission, node: Node) -> Expr:
    """Return the logarithm to base 2, within 3 units in the last place."""
    x = e.operand(node, 0)
    subnormal = tirx.LT(x, e.const(2.0**-126, F32))
    scaled = tirx.Select(subnormal, tirx.Mul(x, e.const(2.0**23, F32)), x)
    shifted = e.share(tirx.Sub(reinterpret(scaled, "int32", e.lanes), e.const(_SQRT_HALF_BITS, "int32")), "int32")
    exponent = tirx.Sub(
        script.shift_right(shifted, e.const(23, "int32")),
        tirx.Select(subnormal, e.const(23, "int32"), e.const(0, "int32")),
    )
    mantissa = tirx.Add(script.bitwise_and(shifted, e.const(0x7FFFFF, "int32")), e.const(_SQRT_HALF_BITS, "int32"))
    # Exact: the mantissa lies in [sqrt(1/2), sqrt(2)).
    f = e.share(tirx.Sub(reinterpret(mantissa, F32, e.lanes), e.const(1.0, F32)), F32)
    q = e.const(_LOG[0], F32)
    for c in _LOG[1:]:
        q = tirx.Add(tirx.Mul(q, f), e.const(c, F32))
    square = e.share(tirx.Mul(f, f), F32)
    tail = e.share(tirx.Sub(tirx.Mul(tirx.Mul(square, f), q), tirx.Mul(square, e.const(0.5, F32))), F32)
    # log2(e) = 1 + a rest: the small terms first, so that f itself is rounded once.
    rest = e.const(_LOG2_E_REST, F32)
    low = tirx.Add(tirx.Add(tirx.Mul(tail, rest), tirx.Mul(f, rest)), tail)
    result = e.share(tirx.Add(tirx.Add(low, f), tirx.Cast(e.vector(F32), exponent)), F32)
    result = tirx.Select(tirx.LE(x, e.const(3.4028234663852886e38, F32)), result, x)  # +inf and NaN stay
    result = tirx.Select(tirx.LE(x, e.const(0.0, F32)), e.const(-math.inf, F32), result)
    return tirx.Select(tirx.LT(x, e.const(0.0, F32)), e.const(math.nan, F32), result)


def from_integer(e: Emission, x: Expr, name: str) -> Expr:
    """Return the f32 nearest to an integer."""
    if bits_of(name) < 64 or not e.processor.is_32_bit:
        # Signed conversions are instructions everywhere.
        wide = "int32" if bits_of(name) < 32 else name
        return cast(cast(x, name, wide, e.lanes), wide, F32, e.lanes)
    # 32-bit processors would call the compiler's library. To f64 in halves, with the bits that it cannot hold
    # collected in one below, so that the second rounding sees on which side of a tie the number lies.
    unsigned = is_signed(name) is False
    high_type = "uint32" if unsigned else "int32"
    sticky = tirx.Select(
        tirx.EQ(script.bitwise_and(x, e.const(0x7FF, name)), e.const(0, name)), e.const(0, name), e.const(0x400, name)
    )
    kept = script.bitwise_or(script.shift_left(script.shift_right(x, e.const(11, name)), e.const(11, name)), sticky)
    kept = e.share(tirx.Select(_is_wide(e, x, name), kept, x), name)
    high = cast(cast(script.shift_right(kept, e.const(32, name)), name, high_type, e.lanes), high_type, F64, e.lanes)
    low = cast(cast(kept, name, "uint32", e.lanes), "uint32", F64, e.lanes)
    return cast(tirx.Add(tirx.Mul(high, e.const(2.0**32, F64)), low), F64, F32, e.lanes)


_TO_NEAREST = {16: "llvm.x86.sse2.cvtps2dq", 32: "llvm.x86.avx.cvt.ps2dq.256",
               64: "llvm.x86.avx512.mask.cvtps2dq.512"}  # fmt: skip


def _nearest(e: Emission, node: Node) -> Expr | None:
    """Return a rounded, clamped float as int32 by a conversion that rounds half to even; None if it is no such."""
    found = rounded(node)
    if found is None or not _converts(e):
        return None
    node, bounds = found
    x = e.operand(node, 0)
    for bound in reversed(bounds):
        limit = e.const(number_of(bound.args[1]), F32)
        kept = tirx.LT(x, limit) if bound.op == "min" else tirx.LT(limit, x)
        x = e.share(tirx.Select(kept, x, limit), F32)
    return _converted(e, x)


def for_saturation(e: Emission, node: Node) -> Expr | None:
    """Return int32 numbers that x86's unsigned saturation makes the bytes of a rounded float in [0, b], b <= 255.

    What is below 0 and NaN (which is converted to the least int32) become 0 there, so that they need no clamp here.
    None if the value is no such.
    """
    if node.op != "cast" or not node.args[0].dtype.is_float or not e.processor.is_x86 or not _converts(e):
        return None
    found = rounded(node.args[0])
    if found is None or [bound.op for bound in found[1]] != ["min", "max"]:
        return None
    source, bounds = found
    most, least = (number_of(b.args[1]) for b in bounds)
    if least != 0 or not 0 <= most <= 255:
        return None
    x, limit = e.operand(source, 0), e.const(most, F32)
    return _converted(e, e.share(tirx.Select(tirx.LT(limit, x), limit, x), F32))


def _converts(e: Emission) -> bool:
    """Say whether a vector of this many floats is rounded to integers in one instruction."""
    size = e.processor.machine.vector_bytes
    return (
        e.lanes * 4 == size
        and size in _TO_NEAREST
        and (e.processor.is_x86 or e.processor.machine.triple.startswith("aarch64"))
    )


def _converted(e: Emission, x: Expr) -> Expr:
    size = e.processor.machine.vector_bytes
    if e.processor.is_x86:
        more = (e.const(0, "int32"), tirx.const(-1, "int16"), tirx.const(4, "int32")) if size == 64 else ()
        return intrinsic(_TO_NEAREST[size], "int32", e.lanes, x, *more)
    return intrinsic("llvm.aarch64.neon.fcvtns", "int32", e.lanes, x)


def _is_wide(e: Emission, x: Expr, name: str) -> Expr:
    wide = tirx.LT(e.const(1 << 53, name), x)
    return tirx.Or(wide, tirx.LT(x, e.const(-(1 << 53), name))) if is_signed(name) else wide


def to_integer(e: Emission, node: Node, x: Expr, name: str) -> Expr:
    """Return a float without its fraction as an integer; it is proved to fit."""
    low, high = e.interval(node)
    nearest = _nearest(e, node.args[0]) if name == "int32" else None
    if nearest is not None:
        return nearest
    # By way of i32 where that holds it: an instruction everywhere.
    if -(1 << 31) <= low and high < 1 << 31:
        return cast(cast(x, F32, "int32", e.lanes), "int32", name, e.lanes)
    if bits_of(name) < 64 or not e.processor.is_32_bit:
        return cast(x, F32, name, e.lanes)
    wide = e.share(cast(x, F32, F64, e.lanes), F64)
    magnitude = e.share(tirx.Select(tirx.LT(wide, e.const(0.0, F64)), tirx.Sub(e.const(0.0, F64), wide), wide), F64)
    upper = e.share(cast(tirx.Mul(magnitude, e.const(2.0**-32, F64)), F64, "uint32", e.lanes), "uint32")
    lower = tirx.Sub(magnitude, tirx.Mul(cast(upper, "uint32", F64, e.lanes), e.const(2.0**32, F64)))
    whole = script.bitwise_or(
        script.shift_left(cast(upper, "uint32", name, e.lanes), e.const(32, name)),
        cast(cast(lower, F64, "uint32", e.lanes), "uint32", name, e.lanes),
    )
    if not is_signed(name):
        return whole
    whole = e.share(whole, name)
    return tirx.Select(tirx.LT(wide, e.const(0.0, F64)), tirx.Sub(e.const(0, name), whole), whole)
