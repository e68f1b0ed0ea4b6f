"""The report of a sweep: one HTML page that needs nothing else, and the same as JSON, CSV, Markdown and node data.

`content.py` says what a report holds, `gather.py` makes it from a sweep, `plans.py` adds a plan to it, `verdicts.py`
chooses and words, `texts.py` and `html.py` write. `assets` are the page's own parts, `vendor` is the library of its
charts with its licences.
The same folder gives the same bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from softq.errors import InputError
from softq.files import write_text
from softq.sweeps.records import REPORTS, read
from softq.sweeps.report.content import Content, content_schema
from softq.sweeps.report.gather import gather, merge
from softq.sweeps.report.html import to_html
from softq.sweeps.report.plans import plan_result
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
    budget: str | float | None = None,
    plan: str | os.PathLike[str] | None = None,
) -> Written:
    """Write the report of a sweep, or of a sweep and a sensitivity run together.

    The files are those of `softq.sweeps.records.REPORTS`.

    Args:
        folders: One folder, or several of the same model, data, metric and framework.
        out: Where the files go; the first folder if not given.
        budget: The loss allowed, in the metric's unit, or a share of the float value as `X%`.
        plan: A plan's file as `softq plan` left it, with its record beside it.

    Raises:
        InputError: the plan cannot be used, or a folder holds no sweep, or `out` is no folder that can be written.
        UsageError: the budget is no number of at least 0, or the extra `report` is not installed, or
            the folders are of different models, data, metrics or frameworks, or the plan is of another model or metric.
    """
    study, outcomes = merge([read(folder) for folder in folders])
    content = gather(study, outcomes, budget)
    if plan is not None:
        content = replace(content, plan=plan_result(study, plan))
    target = Path(folders[0] if out is None else out)
    if not target.is_dir():
        raise InputError(f"cannot write the report: there is no folder '{target}'")
    writers = (to_html, to_json, to_csv, to_markdown, to_node_data)
    texts = {name: write(content) for name, write in zip(REPORTS, writers, strict=True)}
    for name, text in texts.items():
        write_text(target / name, text)
    return Written(content, tuple(target / name for name in texts))
