"""95 % intervals of proportions: counts of samples that are right or wrong, under one model or under both.

One proportion has Wilson's score interval (E. B. Wilson, Journal of the American Statistical Association 22, 1927).

The difference of two models on the same samples has Tango's score interval (T. Tango, Equivalence test and confidence
interval for the difference in proportions for the paired-sample design, Statistics in Medicine 17, 1998): the
differences that the score test with the likelihood restricted to them does not reject. Of the intervals without a
continuity correction it is the one that depends on the flips and the number of samples alone, as McNemar's test does,
whose statistic is this score at 0. Newcombe's method 10 takes in how many samples are right under both, and where no
sample flips it shrinks with them: 5 wrong and 5 right of 10 give -0.17 to 0.17, Tango's -0.28 to 0.28. Neither leaves
[-1, 1], nor is either ever a point.

McNemar's test is exact, binomial over the flips (Q. McNemar, Psychometrika 12, 1947).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Flips:
    """Samples that are right under one model alone: under the reference (`lost`), under the candidate (`gained`)."""

    lost: int
    gained: int

    @property
    def p_value(self) -> float:
        """McNemar's exact test, two-sided: as likely is a division as uneven if losing is as likely as gaining."""
        flips, less = self.lost + self.gained, min(self.lost, self.gained)
        tail = sum(math.comb(flips, k) for k in range(less + 1))
        return min(1.0, 2 * tail / 2**flips)  # whole numbers up to the quotient, which is then rounded once


def wilson_ends(right: float, count: float) -> tuple[float, float]:
    """Return the ends for `right` of `count`; counts need not be whole, for samples that are worth less than one."""
    share, square = right / count, Z * Z / count
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(share * (1 - share) * square + square * square / 4) / (1 + square)
    return (0.0 if right <= 0 else middle - half), (1.0 if right >= count else middle + half)


def tango_ends(more: float, less: float, count: float) -> tuple[float, float]:
    """Return the ends for (more - less) / count: `more` samples are right under the first alone, `less` the second."""
    return -_upper(less, more, count), _upper(more, less, count)


def _upper(more: float, less: float, count: float) -> float:
    low, high = (more - less) / count, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        apart = count * middle - (more - less)
        inside = apart * apart <= Z * Z * _variance(more, less, count, middle)
        low, high = (middle, high) if inside else (low, middle)
    return high


def _variance(more: float, less: float, count: float, difference: float) -> float:
    """Return the variance of more - less with the likeliest share of `less` under this difference."""
    a, b = 2 * count, (2 * count - more + less) * difference - more - less
    c = -less * difference * (1 - difference)
    share = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)
    return count * (2 * share + difference * (1 - difference))
