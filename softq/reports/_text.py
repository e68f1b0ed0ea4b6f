"""A report as text for people, as Markdown and as JSON. The same report gives the same bytes."""

from __future__ import annotations

import io
import json

from softq.reports._types import MetricResult, Report
from softq.visible import lines, visible
from softq.wording import counted

_COLUMNS = ("metric", "reference", "candidate", "difference", "95 % interval", "unit", "better")
_NUMBERS = {1, 2, 3}


def to_text(report: Report, *, terminal: bool = False, width: int = 100) -> str:
    """Return the report as aligned plain text, or with colours and rules for a terminal of `width` columns."""
    rows = [tuple(map(visible, _cells(result))) for result in report.metrics]
    head = [
        f"reference  {report.reference}",
        f"candidate  {report.candidate}",
        f"data       {report.data}, {_samples(report)}",
        f"output     {report.output}" + (f", labels {report.labels}" if report.labels else ""),
        "",
    ]
    tail = _remarks(report)
    if terminal:
        return _pretty(head, rows, tail, width, passed=report.passed)
    widths = [max(len(row[i]) for row in (_COLUMNS, *rows)) for i in range(len(_COLUMNS))]
    table = [
        "  ".join(c.rjust(w) if i in _NUMBERS else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in (_COLUMNS, *rows)
    ]
    return lines([*head, *table, *([""] if tail else []), *tail])


def to_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    text = [
        f"# {_escape(report.candidate)} against {_escape(report.reference)}",
        "",
        f"Data: {_escape(report.data)}, {_samples(report)}. Output: {_escape(report.output)}."
        + (f" Labels: {_escape(report.labels)}." if report.labels else ""),
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'|'.join(' ---: ' if i in _NUMBERS else ' --- ' for i in range(len(_COLUMNS)))}|",
        *(f"| {' | '.join(map(_escape, _cells(result)))} |" for result in report.metrics),
        "",
    ]
    for note in _remarks(report):
        text += [_escape(note), ""]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(report.versions.items()))
    text.append(f"Versions: {versions}.")
    for name, value in sorted(report.hashes.items()):
        text += ["", f"Hash of {_escape(name)}: `{value}`"]
    return "\n".join(text) + "\n"


def to_json(report: Report, *, samples: bool = False) -> str:
    """Return the report as JSON text; `samples` adds what each sample contributed. NaN and infinities are texts."""
    return json.dumps(report.to_json(samples=samples), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _cells(result: MetricResult) -> tuple[str, ...]:
    interval = ""
    if result.interval is not None:
        one = result.interval
        interval = f"{one.of} {one.low:.5g} to {one.high:.5g}"
    return (
        result.name,
        "" if result.reference is None else f"{result.reference:.6g}",
        f"{result.candidate:.6g}",
        "" if result.difference is None else f"{result.difference:+.4g}",
        interval,
        result.unit,
        result.direction,
    )


def _samples(report: Report) -> str:
    return f"{counted(report.count, 'sample')}, {report.batch} at a time"


def _remarks(report: Report) -> list[str]:
    return [*describe_nan(report), *_flips(report), *_times(report), *_verdict(report)]


def describe_nan(report: Report) -> list[str]:
    """Return lines on the NaN that metrics saw, one for those that saw the same outputs; none where there are none."""
    counts = {result.nan: result.name for result in reversed(report.metrics)}
    return [
        f"NaN seen by {name}: {nan.reference} in the reference, {nan.candidate} in the candidate,"
        f" {nan.both} in both at the same place, {nan.candidate_only} in the candidate alone"
        for nan, name in counts.items()
        if nan.reference or nan.candidate
    ]


def _flips(report: Report) -> list[str]:
    return [
        f"{result.name}: samples that are right under the reference alone: {flips.lost} of"
        f" {result.interval.samples:,}, under the candidate alone: {flips.gained};"
        f" McNemar's exact test: p = {flips.p_value:.3g}"
        for result in report.metrics
        if result.interval is not None and (flips := result.interval.flips) is not None
    ]


def _times(report: Report) -> list[str]:
    times = report.time_ratio
    if times is None:
        return []
    return [
        f"time: {times.median:.3g} times the reference's, quartiles {times.low:.3g} to {times.high:.3g};"
        f" {1e3 * times.reference_seconds:.3g} ms and {1e3 * times.candidate_seconds:.3g} ms for"
        f" {min(report.batch, report.count)} at a time, {times.turns} turns"
    ]


def _verdict(report: Report) -> list[str]:
    if report.gate is None:
        return []
    return [f"{'passed' if report.gate.passed else 'FAILED'}: {report.gate.sentence}"]


def _escape(text: str) -> str:
    return visible(text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;"))


def _pretty(head: list[str], rows: list[tuple[str, ...]], tail: list[str], width: int, *, passed: bool) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=width, highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(_COLUMNS):
        table.add_column(column, justify="right" if i in _NUMBERS else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    with console.capture() as capture:
        for line in head[:-1]:
            console.print(Text(visible(line)))
        console.print(table)
        for line in tail:
            console.print(Text(visible(line), style="green" if passed else "bold red"))
    return capture.get()
