"""Which unit a worker gets next: the one that costs least beside its run. It has no influence on any value.

A shard that a worker has not had must be read and run through the float model first; a setting that it has not open
must be converted and loaded. What these take is learned from the answers, so that a sweep of little data spreads its
settings, and one of much data keeps each shard where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softq.sweeps.cluster.roster import Unit, Worker
from softq.sweeps.cluster.unit import Answer


class Costs:
    """What has been learned of the seconds that units cost beside their runs."""

    def __init__(self) -> None:
        self._preparing: dict[int, float] = {}
        self._opening = 0.0

    def learn(self, unit: Unit, answer: Answer) -> None:
        """Take what an answer says."""
        if answer.preparing:
            self._preparing[unit.shard.number] = answer.preparing
        if answer.opening:
            self._opening = ((self._opening or answer.opening) + answer.opening) / 2

    def cheapest(self, units: Sequence[Unit], worker: Worker, workers: Iterable[Worker]) -> Unit:
        """Return the unit that costs a worker least, the first of equals; a setting that nobody has begun comes first.

        Args:
            units: At least one.
            worker: The worker.
            workers: All of them.
        """
        others = [number for other in workers for number in other.opened]

        def cost(unit: Unit) -> tuple[float, int]:
            if unit.plan is None:
                return 0.0, 0
            preparing = 0.0 if unit.shard.number in worker.kept else self._preparing.get(unit.shard.number, 0.0)
            if unit.number in worker.opened:
                return preparing, 0
            return preparing + self._opening, others.count(unit.number)

        return min(units, key=cost)
