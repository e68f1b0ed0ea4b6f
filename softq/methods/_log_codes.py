"""What the methods with logarithmic codes of the probabilities share: -log2 p without a division, and the code of zero.

With S the sum of e^-d over the row, -log2 p = d * log2(e) + log2(S): one multiplication and one addition per element.
"""

from __future__ import annotations

from typing import Literal

from softq.methods._options import option
from softq.methods._softmax import Softmax
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E

Zero = Literal["code", "beyond"]


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
