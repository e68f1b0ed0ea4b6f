"""What commands print: text, JSON, notes, reports, a bar of progress; and the exit code that a gate gives.

Names come out of files of strangers, so nothing is printed but through these functions and `softq.cli.group`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from softq.cli.group import EXIT_GATE
from softq.progress import Progress
from softq.visible import visible

if TYPE_CHECKING:
    from softq.reports import Report


def print_plain(text: str) -> None:
    """Print lines for programs: nothing in them but their ends moves the cursor, and nothing has colours."""
    click.echo("\n".join(map(visible, text.split("\n"))), nl=False)


def print_text(text: str) -> None:
    """Print lines: nothing in them but their ends moves the cursor. On a terminal verdicts have colours."""
    shown = [visible(line) for line in text.split("\n")]
    click.echo("\n".join(_paint(shown) if wants_colours() else shown), nl=False)


def print_line(text: str) -> None:
    """Print one line, whatever is in it."""
    print_text(visible(text) + "\n")


def wants_colours() -> bool:
    """Whether what is printed goes to a terminal that shows colours: NO_COLOR (no-color.org) is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_COLOURS = {"convert": "green", "keep": "yellow", "refuse": "red", "passed": "green", "FAILED": "red"}


def _paint(shown: Sequence[str]) -> list[str]:
    """Give colours to the words of verdicts: those below a head `verdict`, and those that begin a sentence on one."""
    painted: list[str] = []
    column = -1
    for line in shown:
        head = re.search(r"(?<=  )verdict(?=  )", line)
        column = head.start() if head else column if line else -1
        word = re.match(r"\w+", line[column:]) if column >= 0 else re.match(r"(?:verdict +)?(\w+)(?=:)", line)
        place = None if word is None else word.span(word.lastindex or 0)
        start, end = (0, 0) if place is None else (place[0] + max(column, 0), place[1] + max(column, 0))
        colour = _COLOURS.get(line[start:end])
        styled = click.style(line[start:end], fg=colour, bold=True) if colour else line[start:end]
        painted.append(line[:start] + styled + line[end:])
    return painted


def print_json(value: object) -> None:
    """Print a value as JSON; NaN and infinity are refused, which JSON does not have."""
    print_plain(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_notes(notes: Sequence[str]) -> None:
    """Print what the user should know, a line each, beside the result."""
    for note in notes:
        click.echo(visible(f"softq: {note}"), err=True)


def print_report(report: Report, markdown: str | None, as_json: bool) -> None:
    """Print a report, write it, and end with the gate's exit code if that failed."""
    from softq.files import write_text
    from softq.reports import describe_nan, to_json, to_markdown, to_text

    print_notes([f"warning: {note}" for note in describe_nan(report)])
    if as_json:
        print_plain(to_json(report))
    elif wants_colours():
        click.echo(to_text(report, terminal=True), nl=False)  # Its colours are meant.
    else:
        print_text(to_text(report))
    if markdown is not None:
        write_text(markdown, to_markdown(report))
    exit_unless(report.passed)


def exit_unless(passed: bool) -> None:
    """End with the exit code of a gate that failed, if it did."""
    if not passed:
        click.get_current_context().exit(EXIT_GATE)


@contextmanager
def progress() -> Generator[Progress]:
    """Give a callback that draws a progress bar on a terminal, and nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda step, done, total: None
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.markup import escape

    with bars.Progress(console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def show(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(escape(visible(step)), total=total)
            bar.update(tasks[step], completed=done, total=total)

        yield show
