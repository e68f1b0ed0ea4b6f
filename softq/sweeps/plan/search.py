"""A plan under an accuracy budget: method and width for each site, found on some data and verified on others."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from softq.data import DataSource, open_data
from softq.errors import RefusalError, UsageError
from softq.metrics import Flips, find_metric
from softq.plans import Plan
from softq.progress import Progress
from softq.reports import Allowance, Gate, parse_drop
from softq.runner import Runner
from softq.scratch import scratch_folder
from softq.sweeps.budget import Budget
from softq.sweeps.costs import Costs, parse_cost
from softq.sweeps.distributed import check_workers, connect, open_evaluator
from softq.sweeps.evaluate.evaluator import Measurement, Report, Subject
from softq.sweeps.plan.descent import Search
from softq.sweeps.plan.frontier import (
    Rung,
    State,
    build_ladder,
    choose,
    mean_bits,
    mean_saved,
    uniform_choices,
    uniform_state,
)
from softq.sweeps.plan.gains import with_gains
from softq.sweeps.planner import Choice, Planner
from softq.sweeps.records import Outcome, Setting, read
from softq.sweeps.sampled_rows import Rows
from softq.sweeps.sensitivity import output_error
from softq.sweeps.settings import expand, hash_files
from softq.sweeps.task import Task
from softq.targets import Amount
from softq.wording import counted, softmaxes


@dataclass(frozen=True)
class PlanCost:
    """What a plan takes on a target, as if each site had a unit of its own.

    Attributes:
        name: What is counted.
        unit: Its unit.
        sites: For each site that does not stay float how much.
    """

    name: str
    unit: str
    sites: dict[str, float]

    @property
    def total(self) -> float:
        """The sum over the sites."""
        return sum(self.sites.values())


@dataclass(frozen=True)
class Trial:
    """A plan that was measured.

    Attributes:
        name: `METHOD bits=B` where every site has the same, otherwise how many sites have how many bits.
        mean_bits: Mean over the sites of the bits; a site that stays float counts 32.
        searched: The measurement on the data of the search.
        verified: The measurement on the other data, None if it was not verified.
    """

    name: str
    mean_bits: float
    searched: Measurement
    verified: Measurement | None


@dataclass(frozen=True)
class Found:
    """A plan, and what it was found to cost.

    Attributes:
        plan: The plan, for `convert`.
        gate: Whether it keeps the budget in the search, and is shown to keep it on the other data by the rule of
            `softq.check`; and the sentence that says so, or by how much not.
        mean_bits: Mean over the sites of the bits; a site that stays float counts 32.
        bits: Bits of each site, 32 where it stays float.
        searched: The measurement on the data of the search.
        verified: The measurement on the other data.
        split: Which data served the search and which the verification, one sentence.
        tried: The plans that were measured, in the order in which they were.
        notes: What was left out, one sentence each.
        cost: What it takes on the target whose cost was saved instead of bits; None if bits were.
    """

    plan: Plan
    gate: Gate
    mean_bits: float
    bits: dict[str, int]
    searched: Measurement
    verified: Measurement
    split: str
    tried: tuple[Trial, ...]
    notes: tuple[str, ...]
    cost: PlanCost | None = None


def find_plan(
    task: Task,
    *,
    max_drop: str | float,
    methods: str = "all",
    bits: str = "2-8",
    options: Sequence[str] = (),
    verify: DataSource | None = None,
    sweep: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Found:
    """Return the plan with the smallest mean bits that was found to keep the budget, and whether it does on other data.

    Where the task names a cost on a target (`TARGET:NAME`), that is saved instead of bits: each setting has the cost of
    the unit that serves the longest row of all sites.

    The search measures settings that give every site the same, the narrow ones first, until one keeps the budget. From
    there, and from all float, it goes down in the order of `softq.sweeps.plan.frontier`, with errors whose effect on
    the output was measured (`softq.sweeps.plan.gains`), by bisection to the last plan that keeps the budget. It asks
    what the verification asks, that the samples show it; where they show it of no plan, that the loss itself keeps it.
    It ends there: further steps, tried one by one, find what loses little on these samples by chance. No other plan
    that was measured has both fewer bits and less loss than the one found.

    It passes by the rule of `softq.check`: the 95 % interval of the loss on the data of the verification lies within
    the budget. Where it does not, wider plans that keep the budget in the search are verified until one does: `tried`
    tells which, and the sentence how many. Where none does, as on few samples, the plan is the narrowest of these that
    keeps the budget by its value, and the gate fails. Nothing else that is measured on those data has any influence.

    Args:
        task: What is measured; its data serve the search.
        max_drop: The budget, in the metric's unit, or `X%` of the float model's value.
        sweep: Folder of a sweep of this model and metric. Instead of settings chosen by their errors, those that keep
            the budget there are measured, for each width the one with the least loss.
        methods, bits, options, progress: As in `softq.sweeps.run`; methods without a width are left out.
        verify: Data for the verification; if None, the second half of the task's data, and the first is searched.

    Raises:
        UsageError: an argument is wrong, or no method has a width, or the two data are the same.
        InputError: the model or the data cannot be used.
        RefusalError: no site takes a method.
    """
    allowance = parse_drop(max_drop)
    spec = None if task.cost is None else parse_cost(task.cost)
    if spec is not None and not spec.name:
        raise UsageError(f"--cost {task.cost}: a plan saves one cost; expected TARGET[,KEY=VALUE...]:NAME")
    settings, notes = expand(methods, bits, options, task.calibration is not None)
    settings = tuple(one for one in settings if "bits" in one.options)
    if not settings:
        raise UsageError(f"methods {methods}: none has a width, so that there are no bits to save")
    hash_files(settings, task)
    for one in (task, task if verify is None else replace(task, data=verify)):
        check_workers(one)
    opened = task.open()
    planner = Planner(opened.model, task.selection, task.calibration, task.sampling)
    planner.check(one.method for one in settings)
    runner = opened.runner()
    amounts: dict[str, Amount] = {}
    if spec is not None:
        costs = Costs(spec, planner)
        for one in settings:
            costed = costs.of(one.method, one.options)
            amounts |= {one.key: costed.amounts[spec.name]} if costed.amounts else {}
            notes += () if costed.amounts else (f"left out: {one.method} has no cost on the target: {costed.refused}",)
        settings = tuple(one for one in settings if one.key in amounts)
        if not settings:
            raise RefusalError(f"no method has a cost on the target: {notes[-1]}")
    parts, split = _split(task, runner, verify)
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
                cost = None if spec is None else amounts[one.key].value
                there.append(Rung(int(one.options["bits"]), choice, error, cost))
    notes += tuple(
        f"site {site} stays float, since its errors are not known: {why}" for site, why in rows.unseen.items()
    )
    if not any(rungs.values()):
        nothing = notes[-1] if rows.unseen else "no site of the model takes one of the methods"
        raise RefusalError(f"{nothing}: there is nothing to plan")
    everywhere = uniform_choices(rungs)
    if sweep is not None:
        everywhere = _kept(sweep, planner, task, allowance, settings) or everywhere
    # A site that stays float has no cost on the target: it counts as twice the dearest, so that any method saves.
    unchanged = None if spec is None else 2 * max(amount.value for amount in amounts.values())
    ladders = {site: build_ladder(some, everywhere, unchanged) for site, some in rungs.items()}
    rewrites = {site.id: site.rewrite for site in planner.found() if site.rewrite}

    def plan_of(state: State) -> Plan:
        return planner.plan(choose(ladders, state), rewrites)

    def report(samples: Subject) -> Report | None:
        return None if progress is None else lambda n, show=progress: show("float model", n, samples.data.samples)

    with scratch_folder() as home, connect(task, home) as client:
        with tempfile.TemporaryDirectory(dir=home) as place:
            # In this process: its session is closed before the search opens its own.
            scaled = with_gains(
                list(ladders.values()), plan_of, subject, runner, opened.sessions(planner.model), Path(place),
                None if progress is None else partial(progress, "gains"),
            )  # fmt: skip
        with (
            tempfile.TemporaryDirectory(dir=home) as place,
            open_evaluator(client, task, opened, planner, runner, subject, Path(place), report(subject)) as first,
        ):
            budget = Budget(allowance, find_metric(task.metric), first.reference.value)
            uniform = sorted(
                {uniform_state(ladders.values(), one) for one in everywhere}, key=partial(mean_saved, scaled)
            )
            search = Search(scaled, uniform, budget, lambda one: first.measure(plan_of(one)), progress)
            state, kept = search.run()
            with (
                tempfile.TemporaryDirectory(dir=home) as elsewhere,
                open_evaluator(
                    client, unseen, opened, planner, runner, other, Path(elsewhere), report(other)
                ) as second,
            ):
                last = Budget(allowance, find_metric(task.metric), second.reference.value)
                verified = {state: second.measure(plan_of(state))}
                wider = search.back(state) if kept else iter(())
                while not last.judge_measured(verified[state]).passed:
                    # Where no sample flips, no wider plan shows more.
                    done = verified[state].loss.flips == Flips(0, 0)
                    if done or (one := next(wider, None)) is None:
                        # Too few samples show nothing of any plan: the value is what there is.
                        state = next((one for one in verified if last.judge(verified[one].metric).passed), state)
                        break
                    state, verified[one] = one, second.measure(plan_of(one))
    here = verified[state]
    gate = last.judge_measured(here)
    sentence = f"on {counted(here.samples, 'sample')} that the search did not see, {gate.sentence}"
    if len(verified) > 1 and gate.passed:
        sentence += (
            f"; {counted(len(verified) - 1, 'narrower plan')} did not pass there, so that the confidence is that of "
            f"the best of {len(verified)} tries"
        )
    elif len(verified) > 1:
        sentence = f"none of the {len(verified)} plans verified is shown to keep the budget; with this one, {sentence}"
    if not kept:
        best = budget.judge(search.measured[state].metric).sentence
        sentence = f"no plan keeps the budget; with the best, in the search {best}; {sentence}"
    tried = tuple(
        Trial(_name(list(ladders.values()), one), mean_bits(scaled, one), found, verified.get(one))
        for one, found in search.measured.items()
    )
    return Found(
        plan_of(state), Gate(gate.passed and kept, sentence), mean_bits(scaled, state),
        {site: some[at].bits for (site, some), at in zip(ladders.items(), state, strict=True)},
        search.measured[state], here, split, tried, (*notes, *search.notes),
        None if spec is None else _cost(spec.name, amounts, ladders, state),
    )  # fmt: skip


def _cost(name: str, amounts: Mapping[str, Amount], ladders: Mapping[str, Sequence[Rung]], state: State) -> PlanCost:
    there = {site: some[at] for (site, some), at in zip(ladders.items(), state, strict=True)}
    sites = {site: rung.saved for site, rung in there.items() if rung.choice is not None}
    return PlanCost(name, next(iter(amounts.values())).unit, sites)


def _kept(
    folder: str | os.PathLike[str], planner: Planner, task: Task, allowance: Allowance, settings: Sequence[Setting]
) -> list[Choice]:
    """Return for each width the setting with the least loss that keeps the budget in a sweep."""
    study, outcomes = read(folder)
    same = {"graph": (planner.graph, study.graph), "weights": (planner.weights, study.weights),
            "metric": (task.metric, study.metric)}  # fmt: skip
    for name, (ours, theirs) in same.items():
        if ours != theirs:
            raise UsageError(f"--sweep {os.fspath(folder)}: its {name} is {theirs!r}, here it is {ours!r}")
    budget, asked = Budget.of(allowance, study), {one.key for one in settings}
    best: dict[int, Outcome] = {}
    for one in sorted(outcomes, key=lambda one: budget.excess(one.metric), reverse=True):
        if one.setting.key in asked and budget.judge(one.metric).passed:
            best[int(one.setting.options["bits"])] = one
    return [(one.setting.method, one.setting.options) for one in best.values()]


def _name(ladders: Sequence[Sequence[Rung]], state: State) -> str:
    rungs = [some[at] for some, at in zip(ladders, state, strict=True)]
    choice = rungs[0].choice
    if choice is not None and all(rung.choice == choice for rung in rungs):
        return " ".join((choice[0], *(f"{key}={value}" for key, value in choice[1].items())))
    counts = Counter(rung.bits for rung in rungs)
    return ", ".join(f"{softmaxes(count)} with {bits} bits" for bits, count in sorted(counts.items()))


def _split(
    task: Task, runner: Runner, verify: DataSource | None
) -> tuple[tuple[tuple[int, int | None], tuple[int, int | None]], str]:
    """Return which samples are searched and which verified."""
    if verify is not None:
        return ((0, task.samples), (0, None)), "searched on --data, verified on --verify"
    data = open_data(task.data, runner.inputs, runner.outputs)
    count = data.samples
    if count is None:
        count = sum(part.samples for part in data.batches(task.selection.batch))
    count = count if task.samples is None else min(count, task.samples)
    step = data.fixed_batch or 1
    half = count // 2 // step * step
    if half < 1:
        held = counted(count, "sample")
        raise UsageError(f"{data.source}: {held} cannot be split into two halves; give --verify DATA")
    return (
        (0, half),
        (half, count),
    ), f"searched on samples 1 to {half:,}, verified on samples {half + 1:,} to {count:,}"
