"""The scale of scores: options for the real value of one unit, and the distance from the maximum in such units."""

from __future__ import annotations

from softq.methods._options import Auto, option
from softq.rowprog import Trace
from softq.rowprog.library import IntegerDistance, integer_distance

RANGE = 16.0
"""Distance that the units of float scores are to cover where no step is given: e^-16 is 1e-7."""


def bits_option() -> int:
    """Return the field for the width of a distance."""
    return option(8, "bits of the whole-number distance from the maximum", low=4, high=12)


def integer_step(greatest: float = 2.0**16) -> float:
    """Return the field for the step of integer scores where float ones are not rounded to it."""
    return option(0.0, "8-bit integer scores only: the real value of one unit", low=0.0, high=greatest)


def rounding_step() -> float:
    """Return the field for the step of integer scores to which float ones are rounded as well."""
    return option(
        0.0625, "the real value of one unit of 8-bit integer scores, or what float ones are rounded to",
        low=2.0**-16, high=16.0,
    )  # fmt: skip


def own_step() -> float | Auto:
    """Return the field for the step of integer scores where the method has units of its own."""
    return option(
        "auto", "8-bit integer scores only: the real value of one unit; auto: that of the method's own units",
        low=2.0**-12, high=2.0**8,
    )  # fmt: skip


def step_option(auto: str) -> float | Auto:
    """Return the field for the step to which float scores are rounded too; `auto` says what it is for these."""
    return option(
        "auto", "the real value of one unit of 8-bit integer scores, or what float ones are rounded to; auto, for "
        f"float ones: {auto}",
        low=2.0**-12, high=1.0,
    )  # fmt: skip


def scaled_distance(t: Trace, bits: int, step: float | Auto, unit: float) -> IntegerDistance:
    """Return the distance of each score in units of `unit`, of `bits` bits; `step` is what the option says.

    Raises:
        UsageError: the scores are integers and the option gives no number.
    """
    return integer_distance(t, unit, 2**bits - 1, 0.0 if step == "auto" else unit)
