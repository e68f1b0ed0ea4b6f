"""Each site, or each head, alone at each width: cheap errors for all, the metric for those with the greatest."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import partial

from softq.conversion import attention_rows
from softq.errors import RefusalError, UsageError
from softq.methods import METHODS, Sample
from softq.sweep.bench import Subject
from softq.sweep.engine import Job, Sweep, measure
from softq.sweep.folder import opened
from softq.sweep.pace import Progress
from softq.sweep.planner import Planner
from softq.sweep.proxies import site_errors
from softq.sweep.records import Setting, SiteErrors
from softq.sweep.settings import Granularity, expand
from softq.sweep.task import Task

DEFAULT_TOP = 10


def run(
    task: Task,
    *,
    out: str | os.PathLike[str],
    methods: str = "all",
    bits: str = "2-8",
    options: Sequence[str] = (),
    granularity: Granularity = "site",
    top: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Return the outcomes of each site alone, and leave them in the folder `out`; the other sites stay float.

    Args:
        task: What is measured.
        out: The folder; it goes on as that of `softq.sweep.run` does.
        methods: As in `softq.sweep.run`.
        bits: As in `softq.sweep.run`.
        options: As in `softq.sweep.run`.
        granularity: Whether a setting is for one site, or for one head of it. Of heads there are errors only.
        top: For how many settings, those with the greatest errors, the metric is measured; 10 of sites if None.
        force: As in `softq.sweep.run`.
        progress: As in `softq.sweep.run`.

    Raises:
        UsageError: as in `softq.sweep.run`, or `top` is negative or asked for heads.
        InputError: the model or the data cannot be used.
        RefusalError: a site lies in a subgraph or function, whose rows cannot be seen, or no site takes a method.
    """
    if top is not None and top < 0:
        raise UsageError(f"top is {top}; it must be at least 0")
    if granularity == "head" and top:
        raise UsageError(f"top is {top}; a head alone cannot be converted, so that it has errors but no metric")
    count = DEFAULT_TOP if top is None and granularity == "site" else top or 0
    settings, notes = expand(methods, bits, options, task.calibration is not None)
    conditions = {
        "methods": methods, "bits": bits, "set": sorted(options), "granularity": granularity, "top": count
    }  # fmt: skip
    with opened(out, force) as folder:
        return measure(
            task,
            folder,
            partial(_jobs, task, settings, granularity, count, progress),
            notes,
            conditions,
            step="sensitivity",
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
) -> list[Job]:
    rows = sampled(planner, subject, task, {setting.method for setting in settings}, progress)
    jobs: list[Job] = []
    for setting in settings:
        choice = (setting.method, setting.options)
        for site in planner.sites(setting.method):
            planned, samples = planner.site_plan(site, choice), rows[site]
            heads = [None] if granularity == "site" else sorted({sample.head for sample in samples})
            for head in heads:
                one = Setting(setting.method, setting.options, site, head)
                errors = {site: site_errors(planned, samples, head)}
                jobs.append(Job(one, errors, measured=False))
    if not jobs:
        raise RefusalError("no site of the model takes one of the methods: nothing to measure")
    ranked = sorted(range(len(jobs)), key=lambda i: -output_error(jobs[i].sites))
    for i in ranked[:top]:
        jobs[i] = Job(jobs[i].setting, jobs[i].sites)
    # What costs nothing comes first, so that it is there when a long measurement is interrupted.
    return [job for job in jobs if not job.measured] + [jobs[i] for i in ranked[:top]]


def output_error(sites: Mapping[str, SiteErrors]) -> float:
    """Return the error of P x V of a setting for one site, in shares of its size; of P's order where there is no V."""
    (errors,) = sites.values()
    error = errors.argmax_flips if errors.output_error is None else errors.output_error
    return math.inf if math.isnan(error) else error


def sampled(
    planner: Planner, subject: Subject, task: Task, methods: set[str], progress: Progress | None
) -> dict[str, list[Sample]]:
    """Return a bounded sample of the rows of each site that takes one of the methods, by id.

    Raises:
        RefusalError: a site lies in a subgraph or function, whose rows cannot be seen.
    """
    rows: dict[str, list[Sample]] = {}
    report = None if progress is None else partial(progress, "rows")
    # The sites of methods that give logarithms hold those of the others.
    flags = {METHODS.get(method).logarithms for method in methods}
    for flag in sorted(flags):
        wanted = [site.id for site in planner.found(flag) if site.takes_method and site.id not in rows]
        if wanted:
            rows |= attention_rows(
                planner.model, wanted, subject.data, flag, task.selection.assumed, batch=subject.batch, progress=report
            )
    return rows
