"""The exponential as a quotient of two polynomials, Pade's, after the octaves are taken off.

    d = max - x = n ln 2 - r, |r| <= ln(2) / 2:  w = 2^-n * (E(r) + O(r)) / (E(r) - O(r)),  p = w / sum(w)

    order    E(r)             O(r)            greatest relative error
    1        2                r               3.6e-3
    2        12 + r^2         6 r             7.0e-6
    3        120 + 12 r^2     r (60 + r^2)    6.2e-9, lost in the rounding of f32

Numerator and denominator are one another's mirror images, e^r e^-r = 1, so that they share their even and odd parts.

Source: the diagonal Pade approximants of e^r (Pade, 1892). Pade activation units (arXiv 1907.06732) publish no
coefficients for the exponential. Without taking off the octaves these hold on [-1, 0] alone: order 2 within 1.5e-3
there.
Input: any f32; -inf is masked, +inf takes all the weight. From 86.5 below the maximum on, w is 0: no subnormals.
Integers: n, in [0, 125]. Accumulator: f32, the sum in [1, N].
Error: w within that of the table and 3e-7 of rounding, relatively.
Calibration: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import EXP_LIMIT, distance, halvings, in_type

_GREATEST_R = 0.375
"""ln(2) / 2 and more than rounding adds."""


@dataclass(frozen=True)
class PadeOptions(FloatOptions):
    """The quotient."""

    order: int = option(2, "degree of numerator and denominator", low=1, high=3)


def _parts(t: Trace, r: Value, order: int) -> tuple[Value, Value]:
    """Return the even and the odd part of the numerator."""
    square = r * r
    if order == 1:
        return t.const(2.0, DType.F32), r
    if order == 2:
        return square + 12.0, r * 6.0
    return square * 12.0 + 120.0, r * (square + 60.0)


def _trace(t: Trace, options: PadeOptions) -> Outputs:
    d = distance(t)
    from_zero = t.max(d.row, 0.0)
    n, r = halvings(t, t.min(from_zero, EXP_LIMIT))
    r = t.assume(r, -_GREATEST_R, _GREATEST_R, "n is the whole number nearest to d log2 e")
    even, odd = _parts(t, r, options.order)
    value = t.divide(even + odd, even - odd) * t.exp2i(t.cast(0.0 - n, DType.I32))
    return d.pair(in_type(t, "exponential", t.select(from_zero <= EXP_LIMIT, value, 0.0)))


METHOD = Method(
    name="pade",
    summary="Exponentials by a quotient of two polynomials within an octave.",
    source="Pade approximants of the exponential",
    options=PadeOptions,
    trace=_trace,
    drop_in=True,
)
