"""Each site, or each head, alone at each width: cheap errors for all, the metric for those with the greatest."""

from __future__ import annotations

import math
import os
from collections.abc import Container, Sequence
from functools import partial
from typing import Unpack

from softq.data import DataSource
from softq.errors import RefusalError, UsageError
from softq.progress import Progress
from softq.sweeps.engine import Job, Sweep, measure
from softq.sweeps.evaluate.evaluator import Subject
from softq.sweeps.evaluate.framework import ModelSource
from softq.sweeps.folder import open_folder
from softq.sweeps.planner import Planner
from softq.sweeps.records import Setting, SiteErrors
from softq.sweeps.sampled_rows import Rows
from softq.sweeps.settings import Granularity, expand, hash_files
from softq.sweeps.task import Task, TaskOptions, make_task
from softq.wording import by_reason, counted

DEFAULT_TOP = 10


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
    top: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **more: Unpack[TaskOptions],
) -> Sweep:
    """Return what each softmax, or each head, costs alone at each width, and leave it in the folder `out`.

    The other softmaxes stay float.

    Args:
        model: As in `softq.sweep`.
        data: As in `softq.sweep`.
        out: As in `softq.sweep`.
        metric: As in `softq.sweep`.
        methods: As in `softq.sweep`.
        bits: As in `softq.sweep`.
        options: As in `softq.sweep`.
        granularity: Whether a setting is for one site, or for one head of it. Of heads there are errors only.
        top: For how many settings, those with the greatest errors, the metric is measured; 10 of sites if None.
        force: As in `softq.sweep`.
        progress: As in `softq.sweep`.
        **more: See `softq.sweeps.task.TaskOptions`.

    Raises:
        UsageError: as in `softq.sweep`, or `top` is negative or asked for heads.
        InputError: the model or the data cannot be used.
        RefusalError: no site takes a method, or there are no rows of heads.
    """
    if top is not None and top < 0:
        raise UsageError(f"top is {top}; it must be at least 0")
    if granularity == "head" and top:
        raise UsageError(f"top is {top}; a head alone cannot be converted, so that it has errors but no metric")
    task = make_task(model, data, metric, **more)
    count = DEFAULT_TOP if top is None and granularity == "site" else top or 0
    settings, notes = expand(methods, bits, options, task.calibration is not None)
    files = hash_files(settings, task)
    conditions = {
        "methods": methods, "bits": bits, "set": sorted(options), "granularity": granularity, "top": count,
        **({"files": files} if files else {}),
    }  # fmt: skip
    with open_folder(out, force) as folder:
        return measure(
            task,
            folder,
            partial(_jobs, task, settings, granularity, count, progress),
            notes,
            conditions,
            step="sensitivity",
            force=force,
            progress=progress,
        )


def _jobs(
    task: Task,
    settings: Sequence[Setting],
    granularity: Granularity,
    top: int,
    progress: Progress | None,
    planner: Planner,
    subject: Subject,
    done: Container[str],
    notes: list[str],
) -> list[Job]:
    planner.check(setting.method for setting in settings)
    rows = Rows(planner, subject, task, {setting.method for setting in settings})
    rows.sample(None if progress is None else partial(progress, "rows"))
    found: list[tuple[Setting, dict[str, SiteErrors]]] = []
    for setting in settings:
        for site in planner.sites(setting.method):
            here = rows.of(site)
            if here is None:
                # The metric can be measured all the same, if not for a head.
                found += [(Setting(setting.method, setting.options, site), {})] if granularity == "site" else []
                continue
            planned = planner.site_plan(site, (setting.method, setting.options))
            for head in [None] if granularity == "site" else here.heads:
                errors = {site: here.errors(planned, head)}
                found.append((Setting(setting.method, setting.options, site, head), errors))
    notes += [f"no errors of {sites}: {why}" for sites, why in by_reason(rows.unseen)]
    if not found:
        nothing = notes[-1] if rows.unseen else "no site of the model takes one of the methods"
        raise RefusalError(f"{nothing}: nothing to measure")
    # What is not known may be great.
    ranked = sorted(found, key=lambda one: -output_error(one[1][str(one[0].site)]) if one[1] else -math.inf)
    worst = {setting.key for setting, _ in ranked[:top]}
    unknown = [setting for setting, errors in found if not errors and setting.key not in worst]
    if unknown:
        left = counted(len(unknown), "setting")
        notes.append(f"left out: {left} of sites without errors; a greater --top measures them")
    # What costs nothing comes first, so that it is there when a long measurement is interrupted.
    cheap = [Job(one, partial(dict, errors), False) for one, errors in found if errors and one.key not in worst]
    return cheap + [Job(one, partial(dict, errors)) for one, errors in ranked[:top]]


def output_error(errors: SiteErrors) -> float:
    """Return the error of P x V of a setting for one site, in shares of its size; of P's order where there is no V."""
    error = errors.argmax_flips if errors.output_error is None else errors.output_error
    return math.inf if math.isnan(error) else error
