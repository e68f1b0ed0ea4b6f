"""The command `softq targets`."""

from __future__ import annotations

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.printing import print_json, print_text


@command(Section.LISTS)
@click.argument("name", required=False, shell_complete=completing.TARGETS)
@options.JSON
def targets(name: str | None, as_json: bool) -> None:
    """List the targets, or describe one."""
    from softq.formatting import describe_target, target_to_text, targets_to_text
    from softq.targets import TARGETS

    chosen = TARGETS.entries().values() if name is None else [TARGETS.open(name)]
    if as_json:
        print_json({"schema": 1, "targets": [describe_target(target) for target in chosen]})
    else:
        print_text(targets_to_text() if name is None else target_to_text(TARGETS.open(name)))
