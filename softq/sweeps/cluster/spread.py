"""A bench whose units of work are spread over a cluster: the values of `softq.sweeps.bench.Bench`, to the bit.

A unit is a setting on a shard. Its parts are small (but where a metric needs whole outputs); they come back here and
are added up in the order of the shards, by the code that adds them up in one process.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from softq.errors import ProofError, RefusalError, SoftqError
from softq.plans import Plan
from softq.runner import Runner
from softq.sweeps.bench import Bench, Measurement, Report, Subject
from softq.sweeps.cluster.crew import Crew, Unit
from softq.sweeps.cluster.shards import partition
from softq.sweeps.cluster.unit import Answer, Spec
from softq.sweeps.comparisons import comparison
from softq.sweeps.planner import Planner
from softq.sweeps.task import Task

if TYPE_CHECKING:
    from distributed import Client

Refused = RefusalError | ProofError

Took = Callable[[int, float | None], None]
"""Called with a setting's number and the seconds of one of its units; None for one that will not be measured."""


class Spread:
    """Measures candidates against a float model that the workers run once, when this is made.

    Args:
        client: The cluster's client.
        task: What is measured, with paths.
        planner: The planner of its model.
        subject: What to measure with.
        part: Which samples of the data the subject has: the first, and the one behind the last.
        folder: For scratch files.
        report: Called with the number of samples done of the float model.

    Attributes:
        subject: What is measured with.
        reference: The float model's value.
        samples: Number of samples.
        seconds: Of the float model's run.

    Raises:
        InputError: no worker can be used; or as on a bench.
    """

    def __init__(
        self,
        client: Client,
        task: Task,
        planner: Planner,
        subject: Subject,
        part: tuple[int, int | None],
        folder: Path,
        report: Report | None = None,
    ) -> None:
        self.subject = subject
        self._shards = partition(subject)
        spec = Spec(uuid.uuid4().hex, _portable(task), part, planner.graph, planner.weights)
        self._crew = Crew(client, spec, len(self._shards), task.timeout)
        self._comparison = comparison(subject.metric, subject.output, subject.label, folder)
        found: dict[int, Answer] = {}
        self.samples = 0
        for unit, answer in self._crew.answers([Unit(-1, "the float model", shard, None) for shard in self._shards]):
            assert isinstance(answer, Answer), answer
            found[unit.shard.number] = answer
            self.samples += answer.samples
            if report is not None:
                report(self.samples)
        for number in range(len(self._shards)):
            for one in found[number].parts:
                self._comparison.add_reference(one)
        self.seconds = sum(found[number].seconds for number in range(len(self._shards)))
        self.reference = self._comparison.reference_value()

    @property
    def slots(self) -> int:
        """Units that are measured at a time."""
        return self._crew.slots

    @property
    def shards(self) -> int:
        """Units of a setting."""
        return len(self._shards)

    def measure(self, plan: Plan, title: str = "a plan") -> Measurement:
        """Return what the model that a plan makes gives.

        Raises:
            SoftqError: as on a bench, or no worker can be used any more.
        """
        ((_, found),) = self.each([(title, plan)])
        if isinstance(found, Measurement):
            return found
        raise found

    def each(
        self, settings: Iterable[tuple[str, Plan | Refused]], took: Took | None = None
    ) -> Iterator[tuple[int, Measurement | Refused]]:
        """Yield the number of each setting with what it gives, or why it cannot be measured, in their order.

        Where the run cannot go on, what is done already comes before the error, whatever stands before it.

        Args:
            settings: Title and plan of each, or why there is none.
            took: Called for each unit.
        """
        ended: dict[int, Measurement | Refused] = {}
        begun: dict[int, list[Unit]] = {}
        answers: dict[int, dict[int, Answer]] = {}

        def skip(number: int, count: int) -> None:
            for _ in range(count if took is not None else 0):
                took(number, None)  # pyright: ignore[reportOptionalCall]

        def units() -> Iterator[Unit]:
            for number, (title, plan) in enumerate(settings):
                if isinstance(plan, Plan):
                    begun[number] = [Unit(number, title, shard, plan) for shard in self._shards]
                    yield from list(begun[number])
                else:
                    ended[number] = plan
                    skip(number, len(self._shards))

        def take(unit: Unit, answer: Answer | Refused) -> None:
            number, shards = unit.number, len(self._shards)
            found = answers.setdefault(number, {})
            if isinstance(answer, Answer):
                found[unit.shard.number] = answer
                if took is not None:
                    took(number, answer.preparing + answer.opening + answer.seconds)
                if len(found) < shards:
                    return
                ended[number] = self._reduced(found)
            else:
                # Each shard would say the same.
                ended[number] = answer
                for one in begun[number]:
                    one.done = True
                skip(number, shards - len(found))
            del answers[number], begun[number]

        after = 0
        try:
            for unit, answer in self._crew.answers(units()):
                take(unit, answer)
                while after in ended:
                    yield after, ended.pop(after)
                    after += 1
        except SoftqError:
            yield from sorted(ended.items(), key=lambda item: item[0])
            raise
        yield from sorted(ended.items(), key=lambda item: item[0])

    def close(self) -> None:
        """Let the workers remove what they keep."""
        self._crew.dismiss()

    def _reduced(self, answers: dict[int, Answer]) -> Measurement:
        self._comparison.begin()
        for number in range(len(self._shards)):
            for part in answers[number].parts:
                self._comparison.add(part)
        metric, loss = self._comparison.result()
        return Measurement(metric, loss, self.samples, sum(answer.seconds for answer in answers.values()))


@contextmanager
def opened_bench(
    client: Client | None,
    task: Task,
    planner: Planner,
    runner: Runner,
    subject: Subject,
    part: tuple[int, int | None],
    folder: Path,
    report: Report | None,
) -> Generator[Bench | Spread]:
    """Give a bench on a cluster, or in this process if there is no client, with the float model's value.

    Args:
        client: The cluster's client, or None.
        task: What is measured.
        planner: The planner of its model.
        runner: The float model in this process.
        subject: What to measure with.
        part: Which samples of the data the subject has: the first, and the one behind the last.
        folder: For scratch files.
        report: Called with the number of samples done of the float model.
    """
    if client is None:
        yield Bench(runner, subject, folder, planner.sessions(task.threads), report)
        return
    bench = Spread(client, task, planner, subject, part, folder, report)
    try:
        yield bench
    finally:
        bench.close()


def _portable(task: Task) -> Task:
    """Return a task as another machine needs it: paths that do not depend on the folder where this process is."""
    return replace(
        task, model=_absolute(task.model), data=_absolute(task.data), calibration=None, command="", scheduler=None
    )  # fmt: skip


def _absolute(given: object) -> str:
    assert isinstance(given, (str, os.PathLike))
    name = os.fspath(given)
    # What is no file is module:function; whatever else it is has been refused before.
    return os.path.abspath(name) if os.path.exists(name) else str(name)
