"""The command `softq limits`."""

from __future__ import annotations

from softq.cli import options
from softq.cli.command import Section, command
from softq.cli.printing import print_json, print_text


@command(Section.LISTS)
@options.JSON
def limits(as_json: bool) -> None:
    """List how much of a file softq reads at most.

    Every command that reads files has --limit-NAME to change it.
    """
    from softq.limits import describe

    if as_json:
        print_json({"schema": 1, "limits": {name: number for name, number, _ in describe()}})
        return
    print_text("".join(f"{name:<9}  {number:>12,}  {about}\n" for name, number, about in describe()))
