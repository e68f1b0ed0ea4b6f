"""Floats of at most 16 bits as their bits: what a number is, and the nearest one, in integer arithmetic on float32.

TVM computes bfloat16 in float32 and then leaves out the roundings between two operators, and its code generators know
the types of 8 bits in part. Models are built with the bits as unsigned integers, which nothing can leave out.

The formats are those of ONNX (docs/docsgen/source/technical/float8.md, float4.md); E8M0 is a power of two alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from softq.compiler.tir.expressions import Names

Expr = Any


@dataclass(frozen=True)
class Format:
    """A float of a sign, an exponent and a fraction, in the low bits of an unsigned integer.

    Attributes:
        exponent: Bits of the exponent.
        fraction: Bits of the fraction.
        bias: What is added to the exponent; subnormal numbers are those of float32 and of IEEE 754.
        greatest: Code of the greatest finite number.
        infinity: Code of infinity, or None.
        nan: Code of NaN, with a sign unless `one_zero`; None where there is none, and 0 is in its place.
        one_zero: Whether the code of a negative zero is NaN.
    """

    exponent: int
    fraction: int
    bias: int
    greatest: int
    infinity: int | None
    nan: int | None
    one_zero: bool = False

    @property
    def sign(self) -> int:
        """The number of the bit that is the sign."""
        return self.exponent + self.fraction

    @property
    def saturates(self) -> bool:
        """Whether overflow is the greatest number in any case."""
        return self.infinity is None and self.nan is None


FORMATS: Mapping[str, Format] = {
    "bfloat16": Format(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float8_e4m3fn": Format(4, 3, 7, 0x7E, None, 0x7F),
    "float8_e4m3fnuz": Format(4, 3, 8, 0x7F, None, 0x80, one_zero=True),
    "float8_e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Format(5, 2, 16, 0x7F, None, 0x80, one_zero=True),
    "float4_e2m1fn": Format(2, 1, 1, 0x7, None, None),
}
"""The formats by the names of ml_dtypes."""

_INFINITY = 0x7F800000
"""Bits of float32's infinity; what is greater without its sign is NaN."""


def _u(value: int) -> Expr:
    return tirx.IntImm("uint32", value)


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _float(bits: Expr) -> Expr:
    return tirx.reinterpret("float32", bits)


def _bound(value: Expr, then: Callable[[Expr], Expr]) -> Expr:
    """Return what is computed of bits that are used many times, and may have any expression in their place."""
    names = Names()
    return names.around(then(names.bind("bits", value)))


def decode(name: str, code: Expr) -> Expr:
    """Return the float32 that an unsigned integer of a format's name stands for; unused bits are 0."""
    if name == "float8_e8m0fnu":
        return _bound(code.astype("uint32"), _decoded_power)
    form = FORMATS[name]
    if form.bias == 127:
        return _float(code.astype("uint32") << (23 - form.fraction))
    return _bound(code.astype("uint32"), lambda bits: _decoded(form, bits))


def _decoded_power(code: Expr) -> Expr:
    value = tirx.Select(code == _u(0), _u(_bits(2.0**-127)), code << _u(23))
    return _float(tirx.Select(code == _u(255), _u(_bits(math.nan)), value))


def _decoded(form: Format, code: Expr) -> Expr:
    least = 1 << form.fraction
    magnitude = code & _u((1 << form.sign) - 1)
    tiny = magnitude.astype("float32") * tirx.FloatImm("float32", 2.0 ** (1 - form.bias - form.fraction))
    normal = (magnitude << _u(23 - form.fraction)) + _u((127 - form.bias) << 23)
    value = tirx.Select(magnitude < _u(least), tirx.reinterpret("uint32", tiny), normal)
    if form.infinity is not None:
        value = tirx.Select(magnitude == _u(form.infinity), _u(_INFINITY), value)
    if form.nan is not None and not form.one_zero:
        lowest = form.greatest if form.infinity is None else form.infinity
        value = tirx.Select(magnitude > _u(lowest), _u(_bits(math.nan)), value)
    value = value | ((code >> _u(form.sign)) << _u(31))
    if form.one_zero:
        value = tirx.Select(code == _u(1 << form.sign), _u(_bits(math.nan)), value)
    return _float(value)


def encode(name: str, x: Expr, saturate: bool = False, round_mode: str = "up") -> Expr:
    """Return the code of the number nearest to a float32, half to even, as uint16 for bfloat16, else as uint8.

    Args:
        name: Of the format.
        x: The float.
        saturate: Whether what is too large is the greatest number, infinity too; else infinity, or NaN.
        round_mode: Of E8M0: `up`, `down` or `nearest`.
    """
    bits = tirx.reinterpret("uint32", x)
    if name == "float8_e8m0fnu":
        return _bound(bits, lambda u: _power(u, saturate, round_mode)).astype("uint8")
    form = FORMATS[name]
    code = _bound(bits, lambda u: _encoded(form, u, saturate or form.saturates))
    return code.astype("uint16" if form.sign > 7 else "uint8")


def _encoded(form: Format, u: Expr, saturate: bool) -> Expr:
    shift, sign = 23 - form.fraction, (u >> _u(31)) << _u(form.sign)
    a = u & _u(0x7FFFFFFF)
    code = ((a + _u((1 << (shift - 1)) - 1) + ((a >> _u(shift)) & _u(1))) >> _u(shift)) - _u(
        (127 - form.bias) << form.fraction
    )
    if form.bias != 127:
        # The unit in the last place of this float is the least subnormal number: adding to it rounds.
        large = 2.0 ** (1 - form.bias - form.fraction + 23)
        tiny = tirx.reinterpret("uint32", _float(a) + tirx.FloatImm("float32", large)) - _u(_bits(large))
        code = tirx.Select(a < _u(_bits(2.0 ** (1 - form.bias))), tiny, code)
    over = form.greatest if saturate else form.infinity if form.infinity is not None else form.nan
    assert over is not None
    nan = 0 if form.nan is None else form.nan
    if form.one_zero:
        signed = tirx.Select(code == _u(0), _u(0), code | sign)
        signed = tirx.Select(code > _u(form.greatest), (_u(over) | sign) if saturate else _u(over), signed)
        return tirx.Select(a > _u(_INFINITY), _u(nan), signed)
    code = tirx.Select(code > _u(form.greatest), _u(over), code)
    return tirx.Select(a > _u(_INFINITY), _u(nan), code) | sign


def _power(u: Expr, saturate: bool, round_mode: str) -> Expr:
    """Return the exponent of float32's bits, of which the sign does not count."""
    a = u & _u(0x7FFFFFFF)
    fraction, tiny = a & _u(0x7FFFFF), a < _u(1 << 23)
    # Below 2^-126 the exponent is 0 as well, and 2^-127 has a bit of the fraction for it.
    up = {
        "up": tirx.Select(tiny, a > _u(1 << 22), fraction > _u(0)),
        "nearest": tirx.Select(tiny, a > _u(3 << 21), fraction >= _u(1 << 22)),
        "down": tirx.const(False, "bool"),
    }[round_mode]
    code = (a >> _u(23)) + up.astype("uint32")
    if saturate:
        code = tirx.Select(code > _u(254), _u(254), code)
    else:
        code = tirx.Select(code > _u(254), _u(255), code)
        code = tirx.Select(a < _u(1 << 22), _u(255), code)
    return tirx.Select(a > _u(_INFINITY), _u(255), code)
