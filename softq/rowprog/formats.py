"""Number formats of few bits, as data: the numbers that each has, and which of them a float32 number is rounded to.

E4M3 and E5M2 are those of OFP8 (Open Compute Project, 8-bit Floating Point Specification, version 1.0), E2M1 and E8M0
those of MX (Open Compute Project, Microscaling Formats Specification, version 1.0). bf16 and f16 are here so that they
can be named beside these.

What conversion does, for every format alike:

* A number is rounded to the nearest one of the format, half to the one whose last bit is 0. Below the least normal
  number the formats have subnormal ones, and so has rounding: its step stays that of the least normal numbers there.
* What lies beyond the greatest number becomes the greatest number, infinities too: OFP8's saturating conversion, and
  the only one that MX allows for E2M1, which has neither infinities nor NaN. That E5M2 has infinities does not matter
  then. OFP8 leaves the choice to who converts; weights that are at most 1 by their scale do not meet it.
* NaN stays NaN, of E2M1 too, which MX leaves undefined: values here are float32 numbers, and a row that holds a NaN has
  a normalizer that says so.
* E8M0 is a scale, a power of two: no sign, no zero, no infinity. What is below 2^-127, zero and negative numbers among
  it, becomes 2^-127. MX takes the power of two below (its section 6.3), e8m0; an encoder that converts takes the
  nearest, halves to the greater one, e8m0-nearest; e8m0-up is the power of two above, with which nothing saturates
  that is divided by the scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from softq.rowprog.program import Node

Floats = NDArray[np.float32] | NDArray[np.float64]
Direction = Literal["nearest", "down", "up"]


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Attributes:
        name: What options and programs call it.
        bits: Width of a number.
        mantissa: Bits behind the point of a normal number.
        least: Exponent of the least normal number.
        greatest: The greatest finite number.
        direction: Of formats without mantissa, which power of two is taken.
    """

    name: str
    bits: int
    mantissa: int
    least: int
    greatest: float
    direction: Direction = "nearest"

    @property
    def is_power(self) -> bool:
        """Whether all its numbers are powers of two."""
        return self.mantissa == 0

    @property
    def quantum(self) -> float:
        """The least number above zero; of powers of two, the least number."""
        return 2.0 ** (self.least - self.mantissa)

    def round(self, x: Floats) -> Floats:
        """Return the numbers of the format that these become, in their own type."""
        with np.errstate(invalid="ignore"):  # what NumPy says of some NaN
            wide = x.astype(np.float64)
        if self.is_power:
            # fmax and fmin would lose a NaN.
            found = self._power(np.minimum(np.maximum(wide, self.quantum), self.greatest))
        else:
            held = np.clip(wide, -self.greatest, self.greatest)
            exponent = np.maximum(np.frexp(held)[1] - 1, self.least) - self.mantissa
            found = np.ldexp(np.rint(np.ldexp(held, -exponent)), exponent)
        return cast("Floats", found.astype(x.dtype))

    def _power(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        fraction, exponent = np.frexp(x)  # in [1/2, 1)
        above = {"down": False, "up": np.greater(fraction, 0.5), "nearest": np.greater_equal(fraction, 0.75)}
        power = np.ldexp(1.0, exponent - 1 + np.asarray(above[self.direction], np.int64))
        return np.where(np.isnan(x), x, np.minimum(power, self.greatest))


_TABLE = (
    Format("e4m3", 8, 3, -6, 448.0),
    Format("e5m2", 8, 2, -14, 57344.0),
    Format("e2m1", 4, 1, 0, 6.0),
    Format("e8m0", 8, 0, -127, 2.0**127, "down"),
    Format("e8m0-nearest", 8, 0, -127, 2.0**127, "nearest"),
    Format("e8m0-up", 8, 0, -127, 2.0**127, "up"),
    Format("bf16", 16, 7, -126, float.fromhex("0x1.fep127")),
    Format("f16", 16, 10, -14, 65504.0),
)

FORMATS: Mapping[str, Format] = {entry.name: entry for entry in _TABLE}


def format_of(node: Node) -> Format:
    """Return the format of a `round_to` node."""
    return FORMATS[str(node.attrs["format"])]
