"""The command `softq config`."""

from __future__ import annotations

import click

from softq.cli.command import Section, command
from softq.cli.configuration import commands_of, is_section, read, schema
from softq.cli.printing import print_json, print_line
from softq.errors import UsageError


@command(Section.LISTS)
@click.argument("file", required=False)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON schema of such files.")
@click.option("--run", is_flag=True, help="Run the command of each table, in the file's order, until one fails.")
@click.option("--trust", is_flag=True, help="With --run: run code that the file names, too.")
@click.pass_context
def config(context: click.Context, file: str | None, as_schema: bool, run: bool, trust: bool) -> None:
    """Look at a file of options, or run the commands it names.

    FILE gives commands their options by --config (docs/configuration.md); those that it has tables for are named.
    """
    commands = commands_of(context)
    if as_schema == (file is not None):
        raise UsageError("config takes a file, or --schema without one")
    if file is None:
        print_json(schema(commands))
        return
    said = read(file, commands)
    named = [name for name, value in said.items() if is_section(name, value, commands)]
    if not named and run:
        raise UsageError(f"{file}: there is no table of a command, such as [convert], so that nothing is run")
    if not named:
        print_line(f"{file}: no table of a command; its keys are for every command that has them")
    for name in named:
        print_line(f"softq {name} --config {file}")
        if run:
            options = ["--config", file, *["--trust"] * trust]
            with commands[name].make_context(name, options, parent=context.parent) as inner:
                commands[name].invoke(inner)
