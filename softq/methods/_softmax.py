"""What the methods that quantize probabilities share: the exact softmax of a row, not yet divided, and its logarithm.

With S the sum of e^-d over the row, -log2 p = d * log2(e) + log2(S): one multiplication and one addition per element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from softq.methods._options import option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, Distance, distance, exp_minus, in_type

Zero = Literal["code", "beyond"]


@dataclass(frozen=True)
class Softmax:
    """The exact softmax of a row: p = exponentials / total.

    Attributes:
        distance: The distance of each score from the row's maximum.
        exponentials: e^-distance, row of f32 in [0, 1]; 0 for masked elements.
        total: Their sum, scalar; 0 for a fully masked row, else at least 1.
        divisor: The sum, or 1 for a fully masked row.
    """

    distance: Distance
    exponentials: Value
    total: Value
    divisor: Value

    def scale(self, t: Trace, steps: Value) -> Value:
        """Return p * steps, row of f32: one product instead of a division per element; 0 in a fully masked row."""
        return in_type(t, "product", self.exponentials * t.divide(steps, self.divisor))

    def from_zero(self, t: Trace) -> Value:
        """Return the distances without NaN: 0 for scores of +inf and in a row that holds a NaN; +inf where masked."""
        return t.max(self.distance.row, 0.0)

    def normalizer(self, t: Trace, one: Value) -> Value:
        """Return `one`, the weight that stands for p = 1; 0 for a fully masked row, NaN for one that holds a NaN."""
        return t.select(self.distance.is_nan, math.nan, t.select(self.total <= 0.0, 0.0, one))


def softmax(t: Trace) -> Softmax:
    """Return the exact softmax of the f32 scores of the trace."""
    d = distance(t)
    e = exp_minus(t, d.row)
    total = in_type(t, "sum", t.row_sum(e))
    return Softmax(d, e, total, t.max(total, 1.0))


def zero_option() -> Zero:
    """Return the option that says which code means exact zero."""
    return option(
        "code", "what stands for exact zero: the greatest code; or, as published, all beyond the 2^bits codes, which "
        "then takes one code more than the width holds"
    )  # fmt: skip


def levels(bits: int, zero: Zero) -> int:
    """Return how many codes stand for something above zero; the next code is that of zero."""
    return 2**bits - (zero == "code")


def minus_log2(t: Trace, of: Softmax, *, rate: Value | None = None, steps: Value | None = None) -> Value:
    """Return -log2(p * steps) * rate of each element, `rate` and `steps` positive scalars (None: 1).

    The row is never NaN, and +inf for masked elements, in a fully masked row too.
    """
    start, slope = t.log2(of.divisor), t.const(LOG2_E, DType.F32)
    if steps is not None:
        start = start - t.log2(steps)
    if rate is not None:
        start, slope = start * rate, slope * rate
    return of.from_zero(t) * slope + start


def to_codes(t: Trace, level: Value, zero: int) -> Value:
    """Return the levels rounded to codes from 0 to that of zero."""
    return t.cast(t.clamp(t.rint(level), 0.0, float(zero)), DType.U8 if zero < 2**8 else DType.U16)
