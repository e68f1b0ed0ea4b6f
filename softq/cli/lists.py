"""The commands that list what there is: `softq methods`, `softq targets`."""

from __future__ import annotations

import click

from softq.cli import options
from softq.cli.printing import print_json


@click.command()
@click.argument("name", required=False)
@click.option(
    "--length", type=click.IntRange(1, 2**31 - 1), default=1024, show_default=True, metavar="N",
    help="Elements of the row for which the widest integer is told.",
)  # fmt: skip
@options.JSON
def methods(name: str | None, length: int, as_json: bool) -> None:
    """List the softmax methods, or describe one."""
    from softq.methods import METHODS
    from softq.specification import describe_method, method_to_text, methods_to_text

    chosen = METHODS.entries().values() if name is None else [METHODS.get(name)]
    if as_json:
        print_json({"schema": 1, "methods": [describe_method(method, length) for method in chosen]})
    else:
        click.echo(methods_to_text(length) if name is None else method_to_text(METHODS.get(name), length), nl=False)


@click.command()
@click.argument("name", required=False)
@options.JSON
def targets(name: str | None, as_json: bool) -> None:
    """List the targets, or describe one."""
    from softq.formatting import describe_target, target_to_text, targets_to_text
    from softq.targets import TARGETS

    chosen = TARGETS.entries().values() if name is None else [TARGETS.get(name)]
    if as_json:
        print_json({"schema": 1, "targets": [describe_target(target) for target in chosen]})
    else:
        click.echo(targets_to_text() if name is None else target_to_text(TARGETS.get(name)), nl=False)
