"""Rounding to a format of few bits in the language's own arithmetic, so that every walker has it, to the bit.

The power of two u that |x| is at least, and less than twice, is found without looking at bits (Rump, Ogita and Oishi,
Accurate floating-point summation part I, SIAM J. Sci. Comput. 31, 2008, algorithm 3.6): q = (2^23 + 1) x and
u = |q - (1 - 2^-24) q|, each operation rounded to nearest. With the sum of x and 1.5 * 2^23 steps of u 2^-M (at
least those of the least normal number) everything below a step is rounded away, half to even; the difference gives the
rest back exactly. Subnormal numbers of float32 may be taken for 0, as some devices do: they are below half a step of
all formats but bf16 and E8M0.
"""

from __future__ import annotations

from softq.errors import UsageError
from softq.rowprog.formats import FORMATS, Format
from softq.rowprog.trace import Trace
from softq.rowprog.types import DType
from softq.rowprog.value import Value

_SPLIT = 2.0**23 + 1
_BELOW_ONE = 1 - 2.0**-24
_LARGE, _DOWN = 2.0**100, 2.0**-32
"""Above, products with 2^23 would leave f32: such numbers are multiplied by 2^-32 first, and back at last."""


def round_to(t: Trace, x: Value, name: str, *, signed: bool = True) -> Value:
    """Return the numbers of a format that f32 numbers are rounded to, as f32; see `softq.rowprog.formats`.

    Args:
        t: The trace.
        x: Row or scalar of f32.
        name: The format's name.
        signed: Whether there may be numbers below 0; without them it takes fewer operations.

    Raises:
        UsageError: there is no format of this name.
    """
    form = format_named(name)
    # With the constant first, a NaN stays.
    held = t.min(t.const(form.greatest, DType.F32), x)
    if signed or form.is_power:
        held = t.max(t.const(form.quantum if form.is_power else -form.greatest, DType.F32), held)
    return t.round_to(x, _rounded(t, held, form, signed), name)


def format_named(name: str) -> Format:
    """Return the format of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"{name!r} is no number format; allowed is {', '.join(FORMATS)}")
    return FORMATS[name]


def _rounded(t: Trace, held: Value, form: Format, signed: bool) -> Value:
    """Return numbers within the format's range, rounded."""
    if form.greatest < _LARGE:
        return _nearest(t, held, form, signed)
    large = (t.max(held, 0.0 - held) if signed and not form.is_power else held) >= _LARGE
    scale, back = (t.select(large, t.const(factor, DType.F32), 1.0) for factor in (_DOWN, 1 / _DOWN))
    small = held * scale
    if form.is_power:
        return t.min(t.const(form.greatest, DType.F32), _power(t, small, form) * back)
    return _nearest(t, small, form, signed) * back


def _nearest(t: Trace, x: Value, form: Format, signed: bool) -> Value:
    power = _power_below(t, x, signed)
    offset = t.max(power, t.const(2.0**form.least, DType.F32)) * t.const(1.5 * 2.0 ** (23 - form.mantissa), DType.F32)
    return (x + offset) - offset


def _power(t: Trace, x: Value, form: Format) -> Value:
    power = _power_below(t, x, False)
    if form.direction == "down":
        return power
    greater = x > power if form.direction == "up" else x >= power * t.const(1.5, DType.F32)
    return t.select(greater, power + power, power)


def _power_below(t: Trace, x: Value, signed: bool) -> Value:
    """Return the greatest power of two that is not above |x|; 0 of 0, and a NaN stays."""
    wide = x * t.const(_SPLIT, DType.F32)
    power = wide - wide * t.const(_BELOW_ONE, DType.F32)
    return t.max(power, 0.0 - power) if signed else power
