"""Statements of non-inferiority: how much worse a candidate may be by what was measured, and what more data would say.

"At most X worse with 95 % confidence" is the upper end of the two-sided 95 % interval, as it is used in trials of
non-inferiority; a one-sided statement of 97.5 %. What more samples would show assumes that they are like those that
were measured: the same shares of flips, the same loss and variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from softq.metrics.base.proportions import Flips, tango_ends

MOST_SAMPLES = 10**9
"""Above, no number of samples is named."""


@dataclass(frozen=True)
class Evidence:
    """How much worse a candidate is on some samples.

    Attributes:
        loss: How much worse; below 0 is better.
        high: Upper end of its 95 % interval.
        samples: How many samples.
        flips: Those that went from right to wrong and back, where the loss is their share.
    """

    loss: float
    high: float
    samples: int
    flips: Flips | None = None

    def high_with(self, samples: int) -> float:
        """Return the upper end that so many samples like these would have."""
        if self.flips is not None:
            times = samples / self.samples
            return tango_ends(self.flips.lost * times, self.flips.gained * times, samples)[1]
        return self.loss + (self.high - self.loss) * math.sqrt(self.samples / samples)

    def samples_to_show(self, margin: float) -> int | None:
        """Return how many samples like these show a loss of at most `margin`; None if no number does."""
        if not self.loss < margin or self.high_with(MOST_SAMPLES) > margin:
            return None
        low, high = 0, MOST_SAMPLES
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.high_with(middle) <= margin else (middle, high)
        return high

    def statement(self, margin: float | None, say: Callable[[float], str]) -> str:
        """Return what is shown and what more samples would show, in words; `say` writes an amount."""
        # 0 less 0 may be -0.
        sure = f"at most {say(self.high + 0.0)} worse" if self.high >= 0 else f"at least {say(-self.high)} better"
        shown = f"{sure} with 95 % confidence, {self.samples:,} sample{'' if self.samples == 1 else 's'}"
        if margin is None:
            more = 4 * self.samples
            return f"{shown}; {more:,} would show about {say(self.high_with(more))}"
        if self.high <= margin:
            return shown
        needed = self.samples_to_show(margin)
        if needed is None:
            return f"{shown}; no number of samples would show {say(margin)}"
        return f"{shown}; {needed:,} would show {say(margin)}"
