"""The command `softq methods`."""

from __future__ import annotations

import click

from softq.cli import completing, options
from softq.cli.command import Section, command
from softq.cli.printing import print_json, print_text


@command(Section.LISTS)
@click.argument("name", required=False, shell_complete=completing.METHODS)
@click.option(
    "--length", type=click.IntRange(1, 2**31 - 1), metavar="N",
    help="Tell how wide integers get in rows of N elements, and the longest row; of one method for 1024 by default.",
)  # fmt: skip
@options.JSON
def methods(name: str | None, length: int | None, as_json: bool) -> None:
    """List the softmax methods, or describe one."""
    from softq.formatting import PROOF_LENGTH
    from softq.methods import METHODS
    from softq.specification import describe_method, method_to_text, methods_to_text

    if name is None and not as_json:
        print_text(methods_to_text(length))
        return
    length = length or PROOF_LENGTH
    if as_json:
        chosen = METHODS.entries().values() if name is None else [METHODS.open(name)]
        print_json({"schema": 1, "methods": [describe_method(method, length) for method in chosen]})
    elif name is not None:
        print_text(method_to_text(METHODS.open(name), length))
