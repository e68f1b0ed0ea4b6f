"""The command `softq packages`."""

from __future__ import annotations

import click

from softq.cli import completing
from softq.cli.command import Section, command
from softq.cli.printing import print_text


@command(Section.LISTS)
@click.argument("name", required=False, shell_complete=completing.PACKAGES)
def packages(name: str | None) -> None:
    """List what a model in C can be packaged for, or describe one."""
    from softq.formatting import package_to_text, packages_to_text
    from softq.packages import PACKAGES

    print_text(packages_to_text() if name is None else package_to_text(PACKAGES.open(name)))
