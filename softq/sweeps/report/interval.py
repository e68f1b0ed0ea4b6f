"""A number of a report, with its 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.sweeps.records import Estimate


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval; null where there is none.

    Attributes:
        value: The number; null if it is NaN or infinite.
        low: Lower end, null where no interval means anything.
        high: Upper end, null where no interval means anything.
    """

    value: float | None
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends, or None where there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def finite(value: float | None) -> float | None:
    """Return a number as a report has it: null where it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def interval_of(estimate: Estimate) -> Interval:
    """Return an estimate as a report has it: null where it is no finite number."""
    return Interval(finite(estimate.value), finite(estimate.low), finite(estimate.high))
