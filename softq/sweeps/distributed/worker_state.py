"""What the client knows of units of work and of workers, and which unit a worker gets next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softq.plans import Plan
from softq.sweeps.distributed.shards import Shard
from softq.sweeps.distributed.worker import Answer

if TYPE_CHECKING:
    from distributed import Future


@dataclass(eq=False)
class Unit:
    """A shard to measure with a plan, or with the float model.

    Attributes:
        number: Of the setting; -1 for the float model.
        title: What a message calls the setting.
        shard: The shard.
        plan: The plan, or None.
        done: Whether nobody waits for it any more.
        deaths: Workers that died while they measured it.
        away: Addresses of workers that gave no answer in time.
    """

    number: int
    title: str
    shard: Shard
    plan: Plan | None
    done: bool = False
    deaths: int = 0
    away: set[str] = field(default_factory=set[str])

    def __str__(self) -> str:
        return f"{self.title} on samples {self.shard.start + 1} to {self.shard.stop}"


class Worker:
    """A worker, as the client sees it.

    Args:
        address: Its address.
        threads: Units that it measures at a time.

    Attributes:
        workspace: The future of its workspace, once it takes part.
        unfit: Whether it was left out.
        gone: Whether it left the cluster.
        late: How many of its tasks take too long.
        units: The units that it is at.
        kept: Numbers of the shards that it has prepared.
        opened: Numbers of the settings whose models it has open.
    """

    def __init__(self, address: str, threads: int) -> None:
        self.address, self.threads = address, threads
        self.workspace: Future[Any] | None = None
        self.unfit = self.gone = False
        self.late = 0
        self.units: list[Unit] = []
        self.kept: set[int] = set()
        self.opened: deque[int] = deque(maxlen=threads)

    @property
    def ready(self) -> bool:
        """Whether it takes units."""
        return self.workspace is not None and not self.unfit and not self.late

    def begin(self, unit: Unit) -> None:
        """Note that it gets a unit, and what it has at hand from then on."""
        self.units.append(unit)
        self.kept.add(unit.shard.number)
        if unit.plan is not None and unit.number not in self.opened:
            self.opened.append(unit.number)


class Costs:
    """What was learned of the seconds that units cost beside their runs; it has no influence on any value.

    A shard that a worker has not had must be read and run through the float model first; a setting that it has not open
    must be converted and loaded. So a sweep of little data spreads its settings, and one of much data keeps each shard
    where it is.
    """

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
