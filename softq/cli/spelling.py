"""One name for one thing in all commands: where a result goes, and options that have been renamed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from softq.cli.printing import print_notes
from softq.errors import UsageError

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class OldOption(click.Option):
    """An option under a name that it had: it works, is not in the help, and says what to write (docs/stability.md)."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **{**more, "hidden": True})


def place(argument: str, help: str, metavar: str | None = None) -> Decorator:
    """Return what adds the place of a result: the last argument, or `--out`; the command takes it as `argument`.

    Args:
        argument: Name of the parameter.
        help: What `--out` is, in a sentence.
        metavar: What stands in the help for it; by default the name in capitals.
    """
    shown = metavar or argument.upper()

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def placed(*args: Any, **given: Any) -> None:
            named = given.pop("place")
            if named is not None and given[argument] is not None and _typed("place") and _typed(argument):
                raise UsageError(f"{shown} is {given[argument]!r} and --out is {named!r}; one of them is enough")
            # What is typed goes before what a file of options says.
            if given[argument] is None or (named is not None and not _typed(argument)):
                given[argument] = named
            if given[argument] is None:
                raise click.UsageError(f"missing argument '{shown}'", click.get_current_context())
            command(*args, **given)

        option = click.option("--out", "place", metavar=shown, help=help)
        return click.argument(argument, metavar=f"[{shown}]", required=False)(option(placed))

    return add


def renamed(old: str, new: str, parameter: str, **attributes: Any) -> Decorator:
    """Return what adds the option `new`, and `old` beside it with a line that says so.

    Args:
        old: The name that it had.
        new: The name that it has.
        parameter: What the command takes it as.
        attributes: As for `click.option`.
    """
    before = f"{parameter}_before"

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def known(*args: Any, **given: Any) -> None:
            value = given.pop(before)
            if value is not None:
                if _typed(before) and _typed(parameter):
                    raise UsageError(f"{new} and {old} are the same; {old} is the name it had")
                print_notes([f"{old} is deprecated, and goes with a later release; write {new}"])
                given[parameter] = value
            command(*args, **given)

        former = {key: value for key, value in attributes.items() if key in ("type", "metavar", "help")}
        option = click.option(new, parameter, **attributes)
        return option(click.option(old, before, cls=OldOption, **former)(known))

    return add


def _typed(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE
