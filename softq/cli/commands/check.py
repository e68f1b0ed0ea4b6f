"""The command `softq check`."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import click

from softq.cli import options
from softq.cli.arguments import check_outputs
from softq.cli.command import Section, command
from softq.cli.configuration import takes_config
from softq.cli.printing import print_report, progress


@takes_config
@options.limits
@command(Section.CONVERT)
@click.argument("reference")
@click.argument("candidate")
@options.DATA
@options.METRICS
@options.LABELS
@options.OUTPUT
@options.BATCH
@options.MAX_DROP
@click.option("--limit", type=float, metavar="X", help="Gate: the candidate's value is at least (at most) X.")
@options.THREADS
@options.INPUT_SHAPES
@options.TIME
@options.MARKDOWN
@click.option("--junit", metavar="FILE", help="Write the gate as a test case in JUnit XML too.")
@options.JSON
def check(
    reference: str,
    candidate: str,
    data: str,
    markdown: str | None,
    junit: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Compare CANDIDATE with REFERENCE on data.

    With --max-drop or --limit that is a gate: exit 1 when it fails.
    """
    from softq.compare import check as check_models

    check_outputs([markdown, junit], [reference, candidate, data])
    start = time.perf_counter()
    with progress() as step:
        report = check_models(reference, candidate, data, progress=partial(step, "check"), **given)
    if junit is not None:
        from softq.files import write_text
        from softq.reports import to_case, to_junit

        case = to_case(report, time.perf_counter() - start)
        write_text(junit, to_junit(f"{report.candidate} against {report.reference}", [case]))
    print_report(report, markdown, as_json)
