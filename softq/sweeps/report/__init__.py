"""The report of sweeps: one HTML page that needs nothing else, and the same as JSON, CSV, Markdown and node data.

`content.py` says what a report holds, `gather.py` makes it from a study, `columns.py` has the numbers beside the
metric, `studies.py` joins folders and compares studies, `plans.py` adds a plan, `verdicts.py` chooses and words,
`texts.py` and `html.py` write. `assets` are the parts of the page, `vendor` is the library of its charts with licences.
The same folder gives the same bytes.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from softq.errors import InputError, UsageError
from softq.files import write_files
from softq.sweeps.records import REPORTS, read
from softq.sweeps.report.content import BITS, Content, content_schema
from softq.sweeps.report.gather import gather
from softq.sweeps.report.html import to_html
from softq.sweeps.report.plans import plan_result
from softq.sweeps.report.studies import check_budget, compare, label_studies, merge
from softq.sweeps.report.texts import to_csv, to_json, to_markdown, to_node_data

__all__ = ["Content", "Written", "content_schema", "gather", "report"]


@dataclass(frozen=True)
class Written:
    """A report and where it was written.

    Attributes:
        content: What it says.
        files: The files, the page first.
    """

    content: Content
    files: tuple[Path, ...]


def report(
    *folders: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    max_drop: str | float | None = None,
    plan: str | os.PathLike[str] | None = None,
    front: str = BITS,
    budget: str | float | None = None,
) -> Written:
    """Write the report of a study, or of several side by side.

    Folders of the same model, data, samples, metric and framework are one study, unless they hold two values of a
    setting.

    The files are those of `softq.sweeps.records.REPORTS`.

    Args:
        folders: What `sweep` and `sensitivity` left.
        out: Where the files go; the first folder if not given.
        max_drop: The budget: the loss allowed, in the metric's unit, or a share of the float value as `X%`.
        plan: A plan's file as `softq plan` left it, with its record beside it.
        front: What is saved: `bits`, or the name of a column, of which `softq.sweeps.report.columns` has the list.
        budget: What `max_drop` was called; it goes with a later release.

    Raises:
        InputError: the plan cannot be used, or a folder holds no sweep, or `out` is no folder that can be written.
        UsageError: the budget is no number of at least 0, or no setting has a number of `front`, or the extra `report`
            is not installed, or the studies have different metrics and the budget is not `X%`, or the plan is of
            another model or metric, or `budget` is given beside `max_drop`, whose former name it is.
    """
    if budget is not None:
        if max_drop is not None:
            raise UsageError("max_drop and budget are the same; budget is the name it had")
        warnings.warn("budget is max_drop now: the loss allowed", DeprecationWarning, stacklevel=2)
        max_drop = budget
    studies = merge([(os.fspath(folder), *read(folder)) for folder in folders])
    check_budget(studies, max_drop)
    labels = label_studies(studies)
    found = [
        gather(one.study, one.outcomes, max_drop, front, label) for one, label in zip(studies, labels, strict=True)
    ]
    content = compare(found)
    if plan is not None:
        content = replace(content, plan=plan_result([one.study for one in studies], plan))
    target = Path(folders[0] if out is None else out)
    if not target.is_dir():
        raise InputError(f"cannot write the report: there is no folder '{target}'")
    writers = (to_html, to_json, to_csv, to_markdown, to_node_data)
    texts = {target / name: write(content) for name, write in zip(REPORTS, writers, strict=True)}
    write_files({path: text.encode() for path, text in texts.items()})
    return Written(content, tuple(texts))
