"""A plan under an accuracy budget: method and width for each site, found on some data and verified on others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from softq.data import DataSource, open_data
from softq.errors import ProofError, RefusalError, UsageError
from softq.metrics import find_metric
from softq.plans import Plan
from softq.progress import Progress
from softq.reports import Gate, parse_drop
from softq.sweeps.budget import Budget
from softq.sweeps.distributed import check_workers, connect, open_evaluator
from softq.sweeps.evaluate.evaluator import Measurement, Report, Subject
from softq.sweeps.plan.frontier import Rung, State, build_ladder, choose, descend, mean_bits
from softq.sweeps.plan.gains import with_gains
from softq.sweeps.planner import Planner
from softq.sweeps.sampled_rows import Rows
from softq.sweeps.sensitivity import output_error
from softq.sweeps.settings import expand
from softq.sweeps.task import Task


@dataclass(frozen=True)
class Found:
    """A plan, and what it was found to cost.

    Attributes:
        plan: The plan, for `convert`.
        gate: Whether it keeps the budget on both data, and the sentence that says so or by how much not.
        mean_bits: Mean over the sites of the bits; a site that stays float counts 32.
        bits: Bits of each site, 32 where it stays float.
        searched: The measurement on the data of the search.
        verified: The measurement on the other data.
        split: Which data served the search and which the verification, one sentence.
        measured: How many plans were measured.
        notes: What was left out, one sentence each.
    """

    plan: Plan
    gate: Gate
    mean_bits: float
    bits: dict[str, int]
    searched: Measurement
    verified: Measurement
    split: str
    measured: int
    notes: tuple[str, ...]


def find_plan(
    task: Task,
    *,
    max_drop: str | float,
    methods: str = "all",
    bits: str = "2-8",
    options: Sequence[str] = (),
    verify: DataSource | None = None,
    progress: Progress | None = None,
) -> Found:
    """Return the plan with the smallest mean bits that was found to keep the budget, and whether it does on other data.

    The search goes down from all float in the order of `softq.sweeps.plan.frontier`, with errors whose effect on the
    output was measured (`softq.sweeps.plan.gains`), by bisection to the last plan that keeps the budget. It asks that
    the loss keeps the budget with a standard error to spare; where no plan does, that the loss itself does. It ends
    there: further steps, tried one by one, find what loses little on these samples by chance. Nothing measured on the
    data of the verification has any influence.

    Args:
        task: What is measured; its data serve the search.
        max_drop: The budget, in the metric's unit, or `X%` of the float model's value.
        methods, bits, options, progress: As in `softq.sweeps.run`; methods without a width are left out.
        verify: Data for the verification; if None, the second half of the task's data, and the first is searched.

    Raises:
        UsageError: an argument is wrong, or no method has a width, or the two data are the same.
        InputError: the model or the data cannot be used.
        RefusalError: no site takes a method.
    """
    allowance = parse_drop(max_drop)
    settings, notes = expand(methods, bits, options, task.calibration is not None)
    settings = tuple(one for one in settings if "bits" in one.options)
    if not settings:
        raise UsageError(f"methods {methods}: none has a width, so that there are no bits to save")
    for one in (task, task if verify is None else replace(task, data=verify)):
        check_workers(one)
    planner = Planner(task.model, task.selection, task.calibration)
    planner.check(one.method for one in settings)
    runner = task.runner()
    parts, split = _split(task, verify)
    subject = task.subject(runner, parts[0])
    unseen = task if verify is None else replace(task, data=verify)
    other = unseen.subject(runner, parts[1])
    if verify is not None and subject.hash() == other.hash():
        raise UsageError(f"--verify {other.data.source} holds the samples of --data: a plan is verified on other data")
    rows = Rows(planner, subject, task, {one.method for one in settings})
    rows.sample(None if progress is None else partial(progress, "rows"))
    rungs: dict[str, list[Rung]] = {}
    for one in settings:
        choice = (one.method, one.options)
        for site in planner.sites(one.method):
            there = rungs.setdefault(site, [])
            if (here := rows.of(site)) is not None:
                error = output_error(here.errors(planner.site_plan(site, choice)))
                there.append(Rung(int(one.options["bits"]), choice, error))
    notes += tuple(
        f"site {site} stays float, since its errors are not known: {why}" for site, why in rows.unseen.items()
    )
    if not any(rungs.values()):
        nothing = notes[-1] if rows.unseen else "no site of the model takes one of the methods"
        raise RefusalError(f"{nothing}: there is nothing to plan")
    ladders = {site: build_ladder(some) for site, some in rungs.items()}
    rewrites = {site.id: site.rewrite for site in planner.found() if site.rewrite}

    def plan_of(state: State) -> Plan:
        return planner.plan(choose(ladders, state), rewrites)

    def report(samples: Subject) -> Report | None:
        return None if progress is None else lambda n, show=progress: show("float model", n, samples.data.samples)

    with tempfile.TemporaryDirectory() as home, connect(task, Path(home)) as client:
        with tempfile.TemporaryDirectory(dir=home) as place:
            # In this process: its session is closed before the search opens its own.
            scaled = with_gains(
                list(ladders.values()), plan_of, subject, runner, planner.sessions(task.threads), Path(place),
                None if progress is None else partial(progress, "gains"),
            )  # fmt: skip
        with (
            tempfile.TemporaryDirectory(dir=home) as place,
            open_evaluator(client, task, planner, runner, subject, Path(place), report(subject)) as first,
        ):
            budget = Budget(allowance, find_metric(task.metric), first.reference.value)
            search = _Search(scaled, budget, lambda one: first.measure(plan_of(one)), progress)
            state, kept = search.run()
            searched = search.measured[state]
        with (
            tempfile.TemporaryDirectory(dir=home) as place,
            open_evaluator(client, unseen, planner, runner, other, Path(place), report(other)) as second,
        ):
            verified, reference = second.measure(plan_of(state)), second.reference
    last = Budget(allowance, find_metric(task.metric), reference.value)
    gate = last.judge(verified.metric)
    # By the value, as the search is; the sentence says what the samples show.
    shown = last.judge(verified.metric, verified.loss, verified.samples).sentence
    sentence = f"on {verified.samples} samples that the search did not see, {shown}"
    if not kept:
        best = budget.judge(searched.metric).sentence
        sentence = f"no plan keeps the budget; with the best, in the search {best}; {sentence}"
    return Found(
        plan_of(state), Gate(gate.passed and kept, sentence), mean_bits(list(ladders.values()), state),
        {site: some[at].bits for (site, some), at in zip(ladders.items(), state, strict=True)},
        searched, verified, split, len(search.measured), (*notes, *search.notes),
    )  # fmt: skip


def _split(task: Task, verify: DataSource | None) -> tuple[tuple[tuple[int, int | None], tuple[int, int | None]], str]:
    """Return which samples are searched and which verified."""
    if verify is not None:
        return ((0, task.limit), (0, None)), "searched on --data, verified on --verify"
    data = open_data(task.data, task.runner().inputs)
    count = data.samples
    if count is None:
        count = sum(part.samples for part in data.batches(task.selection.batch))
    count = count if task.limit is None else min(count, task.limit)
    step = data.fixed_batch or 1
    half = count // 2 // step * step
    if half < 1:
        raise UsageError(f"{data.source}: {count} samples cannot be split into two halves; give --verify DATA")
    return ((0, half), (half, count)), f"searched on samples 1 to {half}, verified on samples {half + 1} to {count}"


@dataclass
class _Search:
    ladders: Sequence[Sequence[Rung]]
    budget: Budget
    measure: Callable[[State], Measurement]
    progress: Progress | None
    measured: dict[State, Measurement] = field(default_factory=dict[State, Measurement])
    refused: set[State] = field(default_factory=set[State])
    notes: list[str] = field(default_factory=list[str])

    def run(self) -> tuple[State, bool]:
        """Return the narrowest state that keeps the budget, or the best that was measured, and which of these it is."""
        path = descend(self.ladders)
        for keeps in (self._probably, self._by_value):
            # The first state converts nothing and is no plan; whatever is returned was measured itself.
            low, high = 0, len(path)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if keeps(path[middle]) else (low, middle)
            if low:
                return path[low], True
        if not self.measured:
            raise RefusalError(f"no plan can be measured: {self.notes[-1]}")
        return min(self.measured, key=lambda state: self.budget.excess(self.measured[state].metric)), False

    def _probably(self, state: State) -> bool:
        found = self._found(state)
        return found is not None and self.budget.probably(found.loss)

    def _by_value(self, state: State) -> bool:
        found = self._found(state)
        return found is not None and self.budget.judge(found.metric).passed

    def _found(self, state: State) -> Measurement | None:
        if state not in self.measured and state not in self.refused:
            try:
                self.measured[state] = self.measure(state)
            except (RefusalError, ProofError) as error:
                self.refused.add(state)
                self.notes.append(f"left out: {error}")
            if self.progress is not None:
                self.progress("plan", len(self.measured), None)
        return self.measured.get(state)
