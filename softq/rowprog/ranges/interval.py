"""What is known of one value: an interval, and whether it may be NaN; and the error where that is not enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.rowprog.program import Number


@dataclass(frozen=True)
class Interval:
    """All numbers that a value can take lie in [low, high].

    A value that is NaN and nothing else has no numbers: `low` is +inf and `high` is -inf.

    Attributes:
        low: Least number; 0 or 1 of a bool.
        high: Greatest number.
        nan: Whether the value may be NaN.
    """

    low: int | float
    high: int | float
    nan: bool = False

    def __contains__(self, value: Number) -> bool:
        if isinstance(value, float) and math.isnan(value):
            return self.nan
        return self.low <= value <= self.high

    def __str__(self) -> str:
        numbers = f"[{self.low!r}, {self.high!r}]" if self.low <= self.high else ""
        return " or ".join([numbers] * bool(numbers) + ["NaN"] * self.nan)

    @property
    def bits(self) -> int:
        """Bits that hold each integer of the interval: two's complement if there are negative ones, else unsigned."""
        low, high = int(self.low), int(self.high)
        return max((~low).bit_length(), high.bit_length()) + 1 if low < 0 else max(high.bit_length(), 1)


class UnprovedError(Exception):
    """What was found and what is allowed; becomes a `ProofError` where node and program are known."""

    def __init__(self, what: str, found: Interval, allowed: str) -> None:
        super().__init__(f"{what} is {found}; allowed is {allowed}")


def require(what: str, found: Interval, low: int | float, high: int | float) -> None:
    """Require numbers in [low, high] and no NaN."""
    if found.nan or not low <= found.low or not found.high <= high:
        raise UnprovedError(what, found, f"[{low}, {high}]" if high < float("inf") else f"at least {low}")
