"""What a section of the benchmark is: a name, what it measures, and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One piece of work against one rival, in one place.

    Attributes:
        work: What is done, a row of the table.
        rival: What it is compared to.
        place: Shape or model, a column of the table.
        threads: Threads that both used.
        limit: The ratio that is aimed at, if there is one.
        value: Median of the work, in `unit`.
        rival_value: Median of the rival.
        ratio: The quotient of the two; below 1 is better.
        low: Lower quartile of the ratios round by round.
        high: Upper quartile of them.
        least: The quotient of the least values.
        unit: `s` for time, `B` for peak memory.
    """

    work: str
    rival: str
    place: str
    threads: int
    limit: float | None
    value: float
    rival_value: float
    ratio: float
    low: float
    high: float
    least: float
    unit: str = "s"


@dataclass(frozen=True)
class Settings:
    """What the command line asks for.

    Attributes:
        rounds: Runs of each call, in turn; None for the section's own number.
        threads: Numbers of threads to measure with.
        places: The shapes or models to measure; empty for all.
        works: The pieces of work whose name contains one of these; empty for all.
        cpu: LLVM's name of the processor that softq's kernels are made for.
    """

    rounds: int | None = None
    threads: tuple[int, ...] = (1,)
    places: tuple[str, ...] = ()
    works: tuple[str, ...] = ()
    cpu: str = "native"

    def wants(self, place: str, work: str | None = None) -> bool:
        """Say whether a place, or a piece of work in it, is asked for."""
        wanted = work is None or not self.works or any(part in work for part in self.works)
        return wanted and (not self.places or place in self.places)

    @property
    def partial(self) -> bool:
        """Whether something is left out, so that the results are no section's."""
        return bool(self.places or self.works or self.cpu != "native")


@dataclass(frozen=True)
class Section:
    """A group of measurements.

    Attributes:
        name: Its name on the command line and in the file of results.
        title: Its heading in the document.
        text: What is measured, a paragraph for the document.
        measure: Yields the results; it imports what it needs itself, so that listing sections needs nothing.
    """

    name: str
    title: str
    text: str
    measure: Callable[[Settings], Iterable[Result]]
