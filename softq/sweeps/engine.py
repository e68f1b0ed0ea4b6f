"""The sweep: every combination of method and width at all sites, measured on the same samples as the float model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from softq._version import __version__
from softq.compare import versions
from softq.data import DataSource
from softq.errors import ProofError, RefusalError, SoftqError
from softq.progress import Progress
from softq.sweeps.costs import Costs, parse_cost
from softq.sweeps.distributed import check_workers, connect, open_evaluator
from softq.sweeps.eta import Eta
from softq.sweeps.evaluate.evaluator import Candidate, Evaluator, Form, Measurement, Subject
from softq.sweeps.evaluate.framework import ModelSource, Opened
from softq.sweeps.evaluate.timer import Timer
from softq.sweeps.folder import check_same, clear_folder, make_scratch, open_folder, read_existing, write_study
from softq.sweeps.planner import Planner, plan_for
from softq.sweeps.profiled import Profiled
from softq.sweeps.records import Costed, Estimate, Outcome, Setting, SiteErrors, Study, Timed, append
from softq.sweeps.sampled_rows import Rows, sample_or_note
from softq.sweeps.settings import Granularity, expand, hash_files
from softq.sweeps.task import Task, TaskOptions, make_task


@dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes:
        study: What its settings have in common.
        outcomes: One for each setting, in the order in which they were measured.
        notes: What was left out and why, one sentence each.
    """

    study: Study
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One setting to measure.

    Attributes:
        setting: The setting.
        sites: Gives the errors by site, where they are known; called once, when the metric has been measured.
        measured: Whether the metric is to be measured; if not, the outcome has the errors alone.
        make: Gives the model, where no plan makes it.
    """

    setting: Setting
    sites: Callable[[], Mapping[str, SiteErrors]] = dict[str, SiteErrors]
    measured: bool = True
    make: Callable[[], Form] | None = None


Prepare = Callable[[Planner, Subject, Container[str], list[str]], Sequence[Job]]
"""Gives all jobs in order, from the planner of the model, what it is measured with, the keys of the settings that are
not measured again, and a list that takes notes."""


def run(
    model: ModelSource,
    data: DataSource,
    *,
    out: str | os.PathLike[str],
    metric: str,
    methods: str = "all",
    bits: str = "2-8",
    options: Sequence[str] = (),
    granularity: Granularity = "site",
    force: bool = False,
    profile: str | None = None,
    progress: Progress | None = None,
    **more: Unpack[TaskOptions],
) -> Sweep:
    """Return the outcome of every setting, and leave it in the folder `out` as soon as it is there.

    With each go the errors of the rows of each site, from a sample; a site whose rows cannot be seen has none. A sweep
    that was interrupted goes on where it stopped. Values of ONNX models are those of `softq.compare.check` of the model
    that `softq.conversion.convert` makes, to the bit, on the same samples with the same batch and threads.

    Args:
        model: A path, a name or a model, as the framework has it.
        data: See `softq.data.open_data`; it is read once per setting, a batch at a time.
        out: The sweep's folder, made if it is not there; `softq.sweeps.records` says what is in it.
        metric: Name of the metric.
        methods: `all`, or names joined by commas; a name may be the file of a method of one's own (`my_method.py`).
            Empty beside a profile for none.
        bits: Widths such as `4`, `2-8` or `2,4,6-8`.
        options: Options of a method, `METHOD.KEY=VALUE` each.
        granularity: Whether options are fitted per site or, where a method can, per head.
        force: Start anew in a folder that holds something else.
        profile: A device family (`softq.profiles`) or the file of one: what `convert --for` makes is measured, too.
        progress: Called with a step's name, the milliseconds that passed, and those with the ones still to come.
        **more: See `softq.sweeps.task.TaskOptions`.

    Raises:
        UsageError: an argument is wrong, or the folder holds a sweep under other conditions: the message names one.
        InputError: the model or the data cannot be used.
        RefusalError: no setting can be measured.
    """
    task = make_task(model, data, metric, **more)
    asked = None if profile is None else Profiled.of(profile, task)
    settings, notes = ((), ()) if asked and not methods else expand(
        methods, bits, options, task.calibration is not None, granularity
    )  # fmt: skip
    files = hash_files(settings, task)
    conditions = {
        "methods": methods,
        "bits": bits,
        "set": sorted(options),
        "granularity": granularity,
        "for": None if asked is None else asked.condition,  # Earlier sweeps have no such condition.
        **({"files": files} if files else {}),
    }

    def jobs(planner: Planner, subject: Subject, done: Container[str], notes: list[str]) -> list[Job]:
        planner.check(one.method for one in settings)
        rows = Rows(planner, subject, task, {one.method for one in settings})
        if any(one.key not in done for one in settings):
            sample_or_note(rows, notes, None if progress is None else partial(progress, "rows"))
        found = [Job(one, partial(_errors, rows, one, notes)) for one in settings]
        if asked is not None:
            found += [Job(one, make=asked.make(planner.model, one, task)) for one in asked.settings]
        return found

    with open_folder(out, force) as folder:
        return measure(task, folder, jobs, notes, conditions, step="sweep", force=force, progress=progress)


def measure(
    task: Task,
    folder: Path,
    prepare: Prepare,
    notes: Sequence[str],
    conditions: Mapping[str, Any],
    *,
    step: str,
    force: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Measure the settings that a folder lacks; see `run`.

    Args:
        task: What is measured.
        folder: The folder, opened for this process.
        prepare: Gives the jobs.
        notes: What was left out of them.
        conditions: What the values depend on beside what `task` says.
        step: What this is called in the progress.
        force: Whether what the folder holds goes, as soon as the float model was measured.
        progress: As in `run`.
    """
    check_workers(task)
    spec = None if task.cost is None else parse_cost(task.cost)
    opened = task.open()
    planner = Planner(opened.model, task.selection, task.calibration, task.sampling)
    runner = opened.runner()
    subject = task.subject(runner)
    known = identity(task, opened, planner, subject, conditions)
    before = None if force else read_existing(folder)
    if before is not None:
        check_same(folder, before[0], known)
    done = {outcome.setting.key for outcome in before[1]} if before else set[str]()
    left_out = list(notes)
    jobs = prepare(planner, subject, done, left_out)
    costs = None if spec is None else Costs(spec, planner)

    def cost_of(one: Setting) -> Costed | None:
        return None if costs is None or one.is_profiled else costs.of(one.method, one.options, one.site)

    todo = [job for job in jobs if job.setting.key not in done]
    for job in todo:
        cost_of(job.setting)  # What makes no sense is refused before anything is measured.
    if before is None or todo:
        total = subject.data.samples
        report = None if progress is None else lambda n: progress("float model", n, total)
        with (
            make_scratch(folder) as place,
            connect(task, place) as client,
            open_evaluator(client, task, opened, planner, runner, subject, place, report) as evaluator,
            _timer(task, opened, planner, subject, place) as timer,
        ):
            methods = sorted({job.setting.method for job in jobs if not job.setting.is_profiled})
            study = _study(task, known, planner, methods, evaluator, None if timer is None else timer.size_bytes)
            if before is None:
                clear_folder(folder)
                write_study(folder, study)
            else:
                # The same model on the same data: another value says that the machine computes otherwise.
                check_same(folder, before[0], {"reference": study.reference, "samples": study.samples})
            nothing = Estimate(math.nan)
            for job in todo:
                if not job.measured:
                    append(
                        folder, Outcome(job.setting, nothing, nothing, 0, 0.0, job.sites(), cost=cost_of(job.setting))
                    )
            measured = [job for job in todo if job.measured]
            kinds = [job.setting.method for job in measured for _ in range(evaluator.pieces)]
            eta = Eta(step, kinds, evaluator.seconds / evaluator.pieces, progress)
            candidates = (_candidate(planner, job) for job in measured)
            for number, found in evaluator.measure_each(candidates, eta):
                one = measured[number].setting
                if isinstance(found, Measurement):
                    sites = measured[number].sites()
                    # What a profile asks for has its times on the device.
                    own, built = Timed(), dict[str, Timed]()
                    if timer is not None and not one.is_profiled:
                        own, built = timer.measure(plan_for(planner, one))
                    measures = (found.metric, found.loss, found.samples, found.seconds)
                    told = (own.time_ratio, own.size_bytes, cost_of(one), built)
                    append(folder, Outcome(one, *measures, sites, *told))
                else:
                    left_out.append(f"left out: {describe(one)}: {found}")
    now = read_existing(folder)
    assert now is not None
    if not now[1]:
        raise RefusalError(f"no setting can be measured: {left_out[-1]}")
    return Sweep(now[0], now[1], tuple(left_out))


def _timer(
    task: Task, opened: Opened, planner: Planner, subject: Subject, place: Path
) -> AbstractContextManager[Timer | None]:
    if not task.time:
        return nullcontext()
    return Timer(opened, planner.model, subject, place, targets=task.time_on, threads=task.threads)


def _errors(rows: Rows, setting: Setting, notes: list[str]) -> Mapping[str, SiteErrors]:
    try:
        return rows.everywhere(setting)
    except SoftqError as error:
        notes.append(f"no errors of sites: {describe(setting)}: {error}")
        return {}


def _candidate(planner: Planner, job: Job) -> Candidate:
    setting = job.setting
    try:
        plan = plan_for(planner, setting) if job.make is None else job.make()
    except (RefusalError, ProofError) as error:
        plan = error
    return Candidate(setting.method, describe(setting), plan)


def identity(
    task: Task, opened: Opened, planner: Planner, subject: Subject, conditions: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a study that are known before the float model has run."""
    chosen, drawn = task.selection, asdict(task.sampling) if planner.calibrated else {}
    return {
        "softq": __version__,
        "versions": versions(opened.packages),
        "graph": planner.graph,
        "weights": planner.weights,
        "metric": task.metric,
        "conditions": {
            **conditions,
            "framework": task.framework,
            **opened.conditions,
            "limit": task.samples,  # As earlier sweeps have it.
            "sites": list(chosen.sites),
            "all": chosen.all_sites,
            "mask": list(chosen.masks),
            "allow_float32": chosen.allow_float32,
            "max_length": chosen.max_length,
            "calibration": planner.calibration_hash(),
            **{f"calibration_{name}": value for name, value in drawn.items()},
            "labels": subject.label,
            "output": subject.output,
            "batch": subject.batch,
            "threads": task.threads,
            # Values do not depend on it; a table with times for some of its rows says little.
            "time": task.time,
            "time_on": sorted(task.time_on) or None,  # Earlier sweeps have no such condition.
            "cost": task.cost,
        },
        "data_hash": subject.hash(),
    }


def _study(
    task: Task,
    known: Mapping[str, Any],
    planner: Planner,
    methods: Sequence[str],
    evaluator: Evaluator,
    size_bytes: int | None,
) -> Study:
    return Study(
        **known,
        model=task.name,
        data=evaluator.subject.data.source,
        samples=evaluator.samples,
        unit=evaluator.subject.metric.unit,
        direction=evaluator.subject.metric.direction,
        relative=evaluator.subject.metric.interval_of == "ratio",
        reference=evaluator.reference,
        seconds=evaluator.seconds,
        sites=planner.describe(methods),
        command=task.command,
        size_bytes=size_bytes,
    )


def describe(setting: Setting) -> str:
    """Return a setting as a text: method, options, and where."""
    options = [f"{key}={value}" for key, value in setting.options.items()]
    where = [] if setting.site is None else [f"at {setting.site}"]
    head = [] if setting.head is None else [f"head {setting.head}"]
    return " ".join([setting.method, *options, *where, *head])
