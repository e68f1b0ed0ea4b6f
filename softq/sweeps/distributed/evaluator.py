"""An evaluator whose work is spread over a cluster: the values of `softq.sweeps.evaluate.evaluator`, to the bit.

A unit of work is a setting on a shard. Its parts are small (but where a metric needs whole outputs); they come back
here and are added up in the order of the shards, by the code that adds them up in one process.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from softq.errors import SoftqError
from softq.plans import Plan
from softq.runner import Runner
from softq.sweeps.distributed.scheduler import Scheduler
from softq.sweeps.distributed.shards import partition
from softq.sweeps.distributed.worker import Answer, Workspace
from softq.sweeps.distributed.worker_state import Unit
from softq.sweeps.eta import Eta
from softq.sweeps.evaluate.evaluator import (
    Candidate,
    Evaluator,
    Form,
    LocalEvaluator,
    Measurement,
    Refused,
    Report,
    Subject,
)
from softq.sweeps.evaluate.framework import Opened
from softq.sweeps.evaluate.intervals import estimate_candidate, estimate_reference
from softq.sweeps.planner import Planner
from softq.sweeps.task import Task

if TYPE_CHECKING:
    from distributed import Client


class DistributedEvaluator:
    """Measures candidates against a float model that the workers run once, when this is made; see `Evaluator`.

    Args:
        scheduler: Hands out the work.
        subject: What to measure with.
        folder: For scratch files.
        report: Called with the number of samples done of the float model.

    Raises:
        InputError: no worker can be used; or as of `LocalEvaluator`.
    """

    def __init__(self, scheduler: Scheduler, subject: Subject, folder: Path, report: Report | None = None) -> None:
        self.subject, self._scheduler = subject, scheduler
        self._shards = partition(subject)
        self.pieces = len(self._shards)
        self._meter = subject.start(folder)
        found: dict[int, Answer] = {}
        self.samples = 0
        units = [Unit(-1, "the float model", shard, None) for shard in self._shards]
        for unit, answer in self._scheduler.answers(units):
            assert isinstance(answer, Answer), answer
            found[unit.shard.number] = answer
            self.samples += unit.shard.stop - unit.shard.start
            if report is not None:
                report(self.samples)
        for shard in self._shards:
            for part in found[shard.number].parts:
                self._meter.add_reference(part)
        self.seconds = sum(found[shard.number].seconds for shard in self._shards)
        self.reference = estimate_reference(self._meter)

    def measure(self, plan: Plan) -> Measurement:
        """Return what the model that a plan makes gives; see `Evaluator`."""
        ((_, found),) = self.measure_each([Candidate("", "a plan", plan)], Eta())
        if isinstance(found, Measurement):
            return found
        raise found

    def measure_each(self, candidates: Iterable[Candidate], eta: Eta) -> Iterator[tuple[int, Measurement | Refused]]:
        """Yield what each candidate gives; see `Evaluator`.

        Where the run cannot go on, what is done already comes before the error, whatever stands before it.
        """
        ended: dict[int, Measurement | Refused] = {}
        answers: dict[int, dict[int, Answer]] = {}
        begun: dict[int, list[Unit]] = {}
        kinds: list[str] = []

        def units() -> Iterator[Unit]:
            for number, one in enumerate(candidates):
                kinds.append(one.kind)
                begun[number], answers[number] = [], {}
                if isinstance(one.plan, Plan):
                    begun[number] += [Unit(number, one.title, shard, one.plan) for shard in self._shards]
                    yield from list(begun[number])
                else:
                    assert not isinstance(one.plan, Form), "what no plan makes is measured in one process"
                    refuse(number, one.plan)

        def refuse(number: int, found: Refused) -> None:
            # Each shard would say the same.
            for unit in begun.pop(number):
                unit.done = True
            for _ in range(self.pieces - len(answers.pop(number))):
                eta.took(kinds[number], None)
            ended[number] = found

        after, failure = 0, None
        try:
            for unit, answer in self._scheduler.answers(units(), 2 * self.pieces):
                number = unit.number
                if isinstance(answer, Answer):
                    answers[number][unit.shard.number] = answer
                    eta.abreast = self._scheduler.slots
                    eta.took(kinds[number], answer.preparing + answer.opening + answer.seconds)
                    if len(answers[number]) == self.pieces:
                        del begun[number]
                        ended[number] = self._reduce(answers.pop(number))
                else:
                    refuse(number, answer)
                while after in ended:
                    yield after, ended.pop(after)
                    after += 1
        except SoftqError as error:
            failure = error
        yield from sorted(ended.items(), key=lambda item: item[0])
        if failure is not None:
            raise failure

    def _reduce(self, answers: dict[int, Answer]) -> Measurement:
        self._meter.begin()
        for shard in self._shards:
            for part in answers[shard.number].parts:
                self._meter.add(part)
        seconds = sum(answer.seconds for answer in answers.values())
        return Measurement(*estimate_candidate(self._meter), self.samples, seconds)


@contextmanager
def open_evaluator(
    client: Client | None,
    task: Task,
    opened: Opened,
    planner: Planner,
    runner: Runner,
    subject: Subject,
    folder: Path,
    report: Report | None,
) -> Generator[Evaluator]:
    """Give an evaluator on a cluster, or in this process if there is no client, with the float model's value.

    Args:
        client: The cluster's client, or None.
        task: What is measured.
        opened: Its model.
        planner: The planner of that.
        runner: The float model in this process.
        subject: What to measure with.
        folder: For scratch files.
        report: Called with the number of samples done of the float model.
    """
    if client is None:
        yield LocalEvaluator(runner, subject, folder, opened.sessions(planner.model), report)
        return
    workspace = Workspace(_portable(task), subject.part, planner.graph, planner.weights)
    with closing(Scheduler(client, workspace, task.timeout)) as scheduler:
        yield DistributedEvaluator(scheduler, subject, folder, report)


def _portable(task: Task) -> Task:
    """Return a task as another machine needs it: paths that do not depend on the folder where this process is."""

    def absolute(given: object) -> str:
        assert isinstance(given, (str, os.PathLike))
        name = os.fspath(given)
        # What is no file is module:function; whatever else it is has been refused before.
        return os.path.abspath(name) if os.path.exists(name) else str(name)

    return replace(
        task, model=absolute(task.model), data=absolute(task.data), calibration=None, command="", scheduler=None
    )  # fmt: skip
