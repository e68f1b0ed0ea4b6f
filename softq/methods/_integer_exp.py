"""I-BERT's integer exponential, which several methods share.

    e^-(S d) = 2^-z e^-(S u),  z = d div q, u = d - z q, q = ceil(0.6931 / S)
    e^-(S u) = a ((S u)^2 - b (S u) + c) = a S^2 (C - u (B - u)),  B = floor(b / S), C = floor(c / S^2)

with a = 0.35815147, b = 0.96963238 / a, c = 1 / a (I-BERT, arXiv 2101.01321, and its code
github.com/kssteven418/I-BERT at 1b09c75; the paper prints 0.3585 (t + 1.353)^2 + 0.344, whose value at 0 is not 1).
The greatest error of the polynomial on [0, ln 2] is 1.9e-3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from softq.methods._options import Auto
from softq.methods._scale import RANGE
from softq.rowprog import DType, Trace, Value

_A, _B = Fraction("0.35815147"), Fraction("0.96963238")
_LN2 = Fraction("0.6931")
AUTO = "16 / 2^bits, lessened so that ln 2 is a whole number of units"


def step_of(bits: int, step: float | Auto) -> float:
    """Return the real value of one unit of the distance.

    q is rounded up, which costs up to 1 / q of each octave unless ln 2 is a whole number of units.
    """
    return math.log(2) / math.ceil(math.log(2) / (RANGE / 2**bits)) if step == "auto" else step


@dataclass(frozen=True)
class Exponential:
    """An integer exponential: mantissa * 2^-octaves / one.

    Attributes:
        mantissa: i32 row in [one / 2, one], roughly; `one` for a distance of 0.
        octaves: i32 row, at most the limit asked for.
        one: C, what stands for 1.
    """

    mantissa: Value
    octaves: Value
    one: int


def constants(step: float) -> tuple[int, int, int]:
    """Return q, B and C for a step, at most 2^12, 2^14 and 2^26 for the least step of 2^-12."""
    unit = Fraction(step)
    return math.ceil(_LN2 / unit), math.floor(_B / _A / unit), math.floor(1 / _A / unit**2)


def exponential(t: Trace, d: Value, step: float, octaves: int) -> Exponential:
    """Return e^-(step d) of an i32 row d >= 0, of which no more than so many octaves are told apart.

    u (B - u) is at most C for every step up to 1, so that the mantissa is never negative; all fits 27 bits.
    """
    q, b, c = constants(step)
    near = t.min(d, q * octaves)
    z = t.divide(near, t.const(q, DType.I32))
    u = near - z * q
    return Exponential(c - u * (b - u), z, c)


def weights(t: Trace, d: Value, step: float, width: int) -> Value:
    """Return e^-(step d) as u32, of `width` bits: C shifted to just below 2^width, or m to the right if C is longer."""
    e = exponential(t, d, step, width)
    left = width - e.one.bit_length()
    return t.cast((e.mantissa << left) >> e.octaves if left >= 0 else e.mantissa >> (e.octaves - left), DType.U32)
