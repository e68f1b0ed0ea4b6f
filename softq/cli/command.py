"""How a command says where it stands in the help."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import click


class Section(StrEnum):
    """The headings of `softq --help`, in their order."""

    LOOK = "First steps"
    CONVERT = "Convert and compare"
    CHOOSE = "Choose methods and widths"
    BUILD = "Build and run"
    KERNELS = "Hardware, and kernels made elsewhere"
    LISTS = "What there is"


class Command(click.Command):
    """A command under a heading of `softq --help`."""

    def __init__(self, name: str | None, *, section: Section, **given: Any) -> None:
        super().__init__(name, **given)
        self.section = section

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; what has no names of its own is completed as a file, as shells do."""
        params = super().get_params(ctx)
        if ctx.resilient_parsing:
            from softq.cli.completing import FileName

            for parameter in params:
                if parameter.type is click.STRING:
                    parameter.type = FileName()
        return params


def command(section: Section) -> Callable[[Callable[..., None]], Command]:
    """Return the decorator that makes a function a command; its name is the function's, with hyphens."""
    return click.command(cls=Command, section=section)
