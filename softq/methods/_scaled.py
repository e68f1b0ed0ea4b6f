"""What methods share whose scores have a known scale: options for width and scale, and the distance in such units."""

from __future__ import annotations

from softq.methods._contract import OptionValue, option
from softq.rowprog import Trace
from softq.rowprog.library import IntegerDistance, integer_distance

RANGE = 16.0
"""Distance that the units of float scores are to cover where no step is given: e^-16 is 1e-7."""


def bits_option() -> OptionValue:
    """Return the field for the width of a distance."""
    return option(8, "bits of the whole-number distance from the maximum", low=4, high=12)


def step_option(auto: str) -> OptionValue:
    """Return the field for the real value of one unit of that distance; `auto` says what it is for float scores."""
    return option(
        "auto", "the real value of one unit of 8-bit integer scores, or what float ones are rounded to; auto, for "
        f"float ones: {auto}",
        low=2.0**-12, high=1.0, words=("auto",),
    )  # fmt: skip


def scaled_distance(t: Trace, bits: OptionValue, step: OptionValue, unit: float) -> IntegerDistance:
    """Return the distance of each score in units of `unit`, of `bits` bits; `step` is what the option says.

    Raises:
        UsageError: the scores are integers and the option gives no number.
    """
    return integer_distance(t, unit, 2 ** int(bits) - 1, 0.0 if step == "auto" else unit)
