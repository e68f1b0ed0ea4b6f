"""The command `softq check`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from softq.cli import options
from softq.cli.arguments import check_outputs
from softq.cli.printing import print_report, progress


@click.command()
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
@options.MARKDOWN
@click.option("--junit", metavar="FILE", help="Write the gate as a test case in JUnit XML too.")
@options.JSON
def check(
    reference: str,
    candidate: str,
    data: str,
    metrics: Sequence[str],
    labels: str | None,
    output: str | None,
    batch: int | None,
    max_drop: str | None,
    limit: float | None,
    threads: int | None,
    markdown: str | None,
    junit: str | None,
    as_json: bool,
) -> None:
    """Compare CANDIDATE with REFERENCE on data; exit 1 when the gate fails."""
    from softq.compare import check as check_models

    check_outputs([markdown, junit], [reference, candidate, data])
    start = time.perf_counter()
    with progress() as step:
        report = check_models(
            reference,
            candidate,
            data,
            metrics=metrics,
            labels=labels,
            output=output,
            batch=batch,
            max_drop=max_drop,
            limit=limit,
            threads=threads,
            progress=lambda done, total: step("check", done, total),
        )
    if junit is not None:
        from softq.reports import to_case, to_junit
        from softq.textfile import write_text

        case = to_case(report, time.perf_counter() - start)
        write_text(junit, to_junit(f"{report.candidate} against {report.reference}", [case]))
    print_report(report, markdown, as_json)
