"""What the methods with logarithmic codes of the probabilities share: -log2 p without a division, and the code of zero.

With S the sum of e^-d over the row, -log2 p = d * log2(e) + log2(S): one multiplication and one addition an element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.methods._contract import OptionValue, option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, distance, exp_minus

BEYOND = "beyond"
"""The word for `zero` as the papers have it."""


def zero_option() -> OptionValue:
    """Return the option that says which code means exact zero."""
    return option(
        "code", "what stands for exact zero: the greatest code; or, as published, all beyond the 2^bits codes, which "
        "then takes one code more than the width holds", words=("code", BEYOND),
    )  # fmt: skip


def levels(bits: OptionValue, zero: OptionValue) -> int:
    """Return how many codes stand for something above zero; the next code is that of zero."""
    return 2 ** int(bits) - (zero != BEYOND)


@dataclass(frozen=True)
class Logarithm:
    """The probabilities of a row on a logarithmic scale.

    Attributes:
        row: Row of f32 in [-inf, +inf], never NaN; +inf for masked elements, in a fully masked row too.
        total: The sum S of e^-d, scalar; 0 for a fully masked row, else at least 1.
        exponentials: e^-d, row of f32.
        is_nan: Whether an element that takes part is NaN, scalar bool.
    """

    row: Value
    total: Value
    exponentials: Value
    is_nan: Value


def minus_log2(t: Trace, *, rate: Value | None = None, steps: Value | None = None) -> Logarithm:
    """Return -log2(p * steps) * rate of each element, `rate` and `steps` positive scalars (None: 1)."""
    d = distance(t)
    e = exp_minus(t, d.row)
    total = t.row_sum(e)
    # Each row that is not fully masked has S >= 1; with 1 in its place a fully masked row gets the code of zero.
    start, slope = t.log2(t.max(total, 1.0)), t.const(LOG2_E, DType.F32)
    if steps is not None:
        start = start - t.log2(steps)
    if rate is not None:
        start, slope = start * rate, slope * rate
    return Logarithm(t.max(d.row, 0.0) * slope + start, total, e, d.is_nan)


def to_codes(t: Trace, level: Value, zero: int) -> Value:
    """Return the levels rounded to codes from 0 to that of zero."""
    return t.cast(t.clamp(t.rint(level), 0.0, float(zero)), DType.U8 if zero < 2**8 else DType.U16)


def normalizer(t: Trace, of: Logarithm, one: Value) -> Value:
    """Return `one`, the weight that stands for p = 1; 0 for a fully masked row, NaN for one that holds a NaN."""
    return t.select(of.is_nan, math.nan, t.select(of.total <= 0.0, 0.0, one))
