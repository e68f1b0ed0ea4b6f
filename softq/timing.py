"""How long a model takes beside another one, on a machine that does other things too.

The two take turns, so that what slows the machine for a while slows both, and the first of a turn changes from turn to
turn. A turn gives one ratio; the median of the ratios is the result, their quartiles say how far to trust it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

_WARM, _FEWEST, _MOST = 2, 7, 101
_SECONDS = 1.0
"""Turns go on so long, between the fewest and the most."""
_SHORTEST = 2e-3
"""Seconds that a measurement takes at least, by repeating the run: clock and call are then below a thousandth of it."""


@dataclass(frozen=True)
class TimeRatio:
    """The time of a candidate's run over that of the reference's.

    Attributes:
        median: Of the ratios of the turns.
        low: Their lower quartile.
        high: Their upper quartile.
        reference_seconds: Median of the reference's time for one run.
        candidate_seconds: The same of the candidate.
        turns: How often both ran, one after the other.
    """

    median: float
    low: float
    high: float
    reference_seconds: float
    candidate_seconds: float
    turns: int


def compare_times(
    reference: Callable[[], object],
    candidate: Callable[[], object],
    *,
    seconds: float = _SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> TimeRatio:
    """Return how long `candidate()` takes beside `reference()`.

    Args:
        reference: Runs the reference once.
        candidate: Runs the candidate once, on the same.
        seconds: How long to go on measuring; at least seven turns whatever they take.
        clock: Tells the seconds.
    """

    def measure(run: Callable[[], object], times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        return (clock() - start) / times

    both = (reference, candidate)
    # The first runs find memory and fill caches.
    repeats = [max(1, math.ceil(_SHORTEST / max(min(measure(run, 1) for _ in range(_WARM)), 1e-9))) for run in both]
    taken: list[tuple[float, float]] = []
    end = clock() + seconds
    while len(taken) < _FEWEST or (clock() < end and len(taken) < _MOST):
        turn = [0.0, 0.0]
        for which in (0, 1) if len(taken) % 2 == 0 else (1, 0):
            turn[which] = measure(both[which], repeats[which])
        taken.append((turn[0], turn[1]))
    low, median, high = statistics.quantiles([theirs / ours for ours, theirs in taken], n=4, method="inclusive")
    ours, theirs = (statistics.median(column) for column in zip(*taken, strict=True))
    return TimeRatio(median, low, high, ours, theirs, len(taken))
