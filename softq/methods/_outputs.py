"""What comes out of integer-only methods: a pair of weights and their sum, or probabilities in a fixed format.

Probabilities in a fixed format are uniform codes, and their mean error can be taken off as `bias-corrected` does it in
floats: with bias=query each row's own, z = (sum of codes - one) / elements, kept with 8 fraction bits, so that weights
are 2^8 code - z and the code of 1 is 2^8 one. z is rounded towards 0, which leaves less than N / 2^8 codes of a row's
sum.
Widths: the sum is of 64 bits; |z| is at most 2^8 times the greatest code or `one`, so that weights have 26 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from softq.errors import UsageError
from softq.methods._contract import Outputs
from softq.methods._options import OptionValue, option
from softq.rowprog import Builder, DType, Value
from softq.rowprog.library import IntegerDistance

FRACTION = 8
"""Fraction bits of a zero point: it is far below a code."""

Bias = Literal["none", "query"]

UNCORRECTED: Mapping[str, OptionValue] = {"bias": "none"}
"""What the option is where nothing is taken off: `Options.unnamed` of methods whose names are older than it."""


def bias_option() -> Bias:
    """Return the option for the correction of probabilities."""
    return option("none", "of probabilities: each row's (query) mean error is taken off, which needs no data, or none")


def as_pair(d: IntegerDistance, weights: Value, total: Value, bias: Bias) -> Outputs:
    """Return weights and their sum as the program's outputs.

    Raises:
        UsageError: a bias is to be taken off, which only probabilities have.
    """
    if bias != "none":
        raise UsageError(
            f"bias is {bias}, but the output is a pair, whose weights have their own sum; choose another output"
        )
    return {"weights": weights, "normalizer": d.normalizer(total)}


def as_probabilities(d: IntegerDistance, codes: Value, total: Value, one: float, bias: Bias, greatest: int) -> Outputs:
    """Return probabilities in a fixed format as the program's outputs.

    Raises:
        UsageError: a bias is to be taken off, and `one` is no whole number, or codes are so great that a fraction of
            them does not fit 31 bits.

    Args:
        d: The distances, which say what takes part.
        codes: Row of unsigned integers, 0 where an element takes no part.
        total: Scalar that is 0 where no element takes part.
        one: The code of 1.
        bias: What the option says.
        greatest: The greatest code there can be.
    """
    if bias == "none":
        return {"weights": codes, "normalizer": d.one(total, one)}
    if not float(one).is_integer():
        raise UsageError(f"bias is {bias}, but the code of 1 is {one:g}, which is no whole number")
    if max(greatest, one) >= 2 ** (30 - FRACTION):
        raise UsageError(
            f"bias is {bias}, but codes up to {max(greatest, int(one))} leave no {FRACTION} fraction bits in 31"
        )
    t, one = codes.trace, int(one)
    whole = t.row_sum(t.cast(codes, DType.I64))
    present = None if d.excluded is None else t.select(d.excluded, 0, t.const(1, DType.I32))
    elements = t.length() if present is None else t.row_sum(present)
    count = t.max(t.cast(elements, DType.I64), 1)  # 1: a fully masked row is divided too
    over = _share(t, whole - one, count, greatest)
    under = _share(t, t.const(one, DType.I64) - whole, count, one)
    weights = (t.cast(codes, DType.I32) << FRACTION) - (over - under)
    return {"weights": d.weigh(weights), "normalizer": d.one(total, one << FRACTION)}


def _share(t: Builder, surplus: Value, count: Value, most: int) -> Value:
    """Return the surplus of each element in units of 2^-8, i32; 0 where there is none."""
    # As it is: no more than every element has. Intervals do not see it.
    share = t.min(t.divide(t.max(surplus, 0) << FRACTION, count), most << FRACTION)
    return t.cast(share, DType.I32)
