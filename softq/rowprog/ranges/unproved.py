"""A demand of an operator that the analysis could not prove."""

from __future__ import annotations

from softq.rowprog.ranges.interval import Interval


class UnprovedError(Exception):
    """What was found and what is allowed; becomes a `ProofError` where node and program are known."""

    def __init__(self, what: str, found: Interval, allowed: str) -> None:
        super().__init__(f"{what} is {found}; allowed is {allowed}")


def require(what: str, found: Interval, low: int | float, high: int | float) -> None:
    """Require numbers in [low, high] and no NaN."""
    if found.nan or not low <= found.low or not found.high <= high:
        raise UnprovedError(what, found, f"[{low}, {high}]" if high < float("inf") else f"at least {low}")
