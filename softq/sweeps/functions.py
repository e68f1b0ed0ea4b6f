"""Studies as functions: what `softq sweep`, `sensitivity`, `plan` and `report` do, for programs.

`softq.sweep` is `softq.sweeps.engine.run`, `softq.sensitivity` is `softq.sweeps.sensitivity.run`, and `softq.report` is
`softq.sweeps.report.report`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from softq.data import DataSource
from softq.errors import UsageError
from softq.files import write_files
from softq.progress import Progress
from softq.sweeps.engine import run as sweep
from softq.sweeps.evaluate.framework import ModelSource
from softq.sweeps.formatting import plan_to_json
from softq.sweeps.plan.record import record_of, record_text
from softq.sweeps.plan.search import Found, find_plan
from softq.sweeps.report import report
from softq.sweeps.sensitivity import run as sensitivity
from softq.sweeps.task import Task, TaskOptions, make_task

__all__ = ["plan", "report", "sensitivity", "sweep"]


def plan(
    model: ModelSource,
    data: DataSource,
    *,
    metric: str,
    max_drop: str | float,
    methods: str = "all",
    bits: str = "2-8",
    options: Sequence[str] = (),
    verify: DataSource | None = None,
    sweep: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **more: Unpack[TaskOptions],
) -> Found:
    """Return method and width for each softmax under a budget, and whether they keep it on other data.

    Args:
        model: As in `softq.sweep`.
        data: As in `softq.sweep`.
        metric: As in `softq.sweep`.
        max_drop: The budget, in the metric's unit, or `X%` of the float model's value.
        methods: As in `softq.sweep`; those without a width are left out.
        bits: As in `softq.sweep`.
        options: As in `softq.sweep`.
        verify: Data for the verification; if None, the second half of the data, and the first is searched.
        sweep: Folder of a sweep of this model and metric, whose best settings are what the search starts from.
        out: A file for the plan; what was measured goes beside it, for `softq.report(plan=...)`.
        progress: As in `softq.sweep`.
        **more: See `softq.sweeps.task.TaskOptions`.

    Raises:
        UsageError: an argument is wrong, or no method has a width, or the two data are the same.
        InputError: the model or the data cannot be used, or the plan cannot be written.
        RefusalError: no site takes a method.
    """
    if out is not None and Path(out).is_dir():
        raise UsageError(f"out {os.fspath(out)!r} is a folder; expected the name of a file")
    task = make_task(model, data, metric, **more)
    found = find_plan(
        task, max_drop=max_drop, methods=methods, bits=bits, options=options, verify=verify, sweep=sweep,
        progress=progress,
    )  # fmt: skip
    if out is not None:
        write_plan(found, task, max_drop, out)
    return found


def write_plan(found: Found, task: Task, max_drop: str | float, out: str | os.PathLike[str]) -> None:
    """Write a plan into the file `out`, and beside it what was measured, for `softq.report(plan=...)`.

    Raises:
        InputError: they cannot be written.
    """
    text = found.plan.to_text()
    result = plan_to_json(found, os.fspath(out))
    record = record_text(result, text, metric=task.metric, budget=str(max_drop), command=task.command)
    write_files({Path(out): text.encode(), record_of(out): record.encode()})
