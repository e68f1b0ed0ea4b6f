"""A core as its files describe it, for tools that put it beside other things."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from softq.errors import InputError
from softq.files import read_json


@dataclass(frozen=True)
class CoreFiles:
    """A core that was written into a folder.

    Attributes:
        folder: Where it lies.
        facts: What NAME.json says.
    """

    folder: Path
    facts: Mapping[str, Any]

    @property
    def module(self) -> str:
        """Name of the module."""
        return str(self.facts["module"])

    @property
    def verilog(self) -> Path:
        """The module's file."""
        return self.folder / f"{self.module}.v"

    @cached_property
    def streams(self) -> Mapping[str, Mapping[str, int]]:
        """The AXI4-Streams: bits of each signal, by its name without the stream's and by the stream's name."""
        found: dict[str, dict[str, int]] = {}
        for port in self.facts["ports"]:
            stream, _, signal = port["name"].rpartition("_t")
            if stream.endswith("_axis"):
                found.setdefault(stream, {})[signal] = port["width"]
        return found

    def is_output(self, port: str) -> bool:
        """Say whether a port is one of the module's outputs."""
        return next(each["output"] for each in self.facts["ports"] if each["name"] == port)


def read_core(path: str | os.PathLike[str]) -> CoreFiles:
    """Return the core that a description is of.

    Args:
        path: NAME.json, as `softq rtl` and `softq build --target verilog` write it.

    Raises:
        InputError: the file cannot be read or describes no core, or the module is not beside it.
    """
    file, wrong = Path(path), f"'{path}' describes no core; expected NAME.json of softq rtl"
    try:
        found = CoreFiles(file.parent, read_json(file))
        if not {"s_axis", "m_axis"} <= set(found.streams):
            raise InputError(wrong)
        verilog = found.verilog
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(wrong) from error
    if not verilog.is_file():
        raise InputError(f"'{verilog}' is not there; it belongs to '{file}'")
    return found
