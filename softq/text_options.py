"""Options that users set as texts: those of targets and of packages."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


def option(default: str, help: str) -> str:
    """Return a dataclass field that is an option.

    Args:
        default: Its default.
        help: What it does and what it takes.
    """
    return dataclasses.field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class TextOptions:
    """Base of options: a frozen dataclass of texts whose fields are made by `option`."""

    @classmethod
    def help(cls) -> dict[str, str]:
        """Return what each option does, by name."""
        return {field.name: field.metadata["help"] for field in dataclasses.fields(cls)}

    def settings(self) -> dict[str, str]:
        """Return what each option is set to, by name."""
        return dataclasses.asdict(self)
