"""What the client knows of its units and workers: who is at what, since when, and what each has at hand."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from softq.plans import Plan
from softq.sweeps.cluster.shards import Shard


@dataclass(eq=False)
class Unit:
    """A shard to measure with a plan, or with the float model.

    Attributes:
        number: Of the setting; -1 for the float model.
        title: What a message calls the setting.
        shard: The shard.
        plan: The plan, or None.
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


Step = Literal["ask", "admit", "unit"]


@dataclass(eq=False)
class Run:
    """Something that a worker is at: a question about itself, or a unit.

    Attributes:
        address: The worker.
        step: `ask` for its versions, `admit` to load the model and look at the data, or a unit.
        unit: The unit.
        since: When it was sent.
        late: Whether it takes too long.
    """

    address: str
    step: Step
    unit: Unit | None
    since: float
    late: bool = False


@dataclass
class Worker:
    """A worker.

    Attributes:
        threads: Units that it measures at a time.
        opened: Numbers of the settings whose models it has open.
        ready: Whether it has been admitted.
        unfit: Whether it has been left out.
        busy: Runs that it is at.
        late: How many of them take too long.
        kept: Numbers of the shards that it has prepared.
    """

    threads: int
    opened: deque[int]
    ready: bool = False
    unfit: bool = False
    busy: int = 0
    late: int = 0
    kept: set[int] = field(default_factory=set[int])

    @property
    def free(self) -> int:
        """How many units it can be given."""
        return self.threads - self.busy if self.ready and not self.late else 0
