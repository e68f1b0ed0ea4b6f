"""What cores of every kind are asked for, checked, and what their descriptions say of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from softq._version import __version__
from softq.codegen.verilog.plan import Settings
from softq.errors import UsageError
from softq.files import read_toml
from softq.methods import Method, Options
from softq.rowprog import DType, Kind, Program

SCORES = (DType.I8, DType.U8)
UNKNOWN_STEP = "the real value of one unit of the scores is not known; step=X of the target says it"
"""What is said where neither a model nor an option has a step, and the method has none of its own."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_PATIENCE = 64
"""Clocks without a move, for each of the longest row, after which a core counts as stuck."""


def check_arguments(name: str, rows: int, languages: Sequence[str] = ("verilog", "vhdl")) -> None:
    """Refuse names of modules and numbers of random rows that no core has; the languages are those of reserved.toml.

    Raises:
        UsageError: one of them is wrong.
    """
    if rows < 0:
        raise UsageError(f"rows is {rows}; allowed is 0 and more")
    if not _NAME.fullmatch(name):
        raise UsageError(f"name is {name!r}; a module's is at most 63 small letters, digits and _, a letter first")
    words = read_toml(Path(__file__).with_name("reserved.toml"))
    for language in languages:
        if name in words[language].split():
            raise UsageError(f"name is {name!r}, which is a word of {language}; give another one: --name {name}_core")


def lengths_for(settings: Settings) -> list[int]:
    """Return the lengths of rows that a testbench feeds."""
    lanes, length = settings.lanes, settings.length
    return sorted({n for n in (1, 2, 3, lanes, lanes + 1, 16, 61, 197, length) if n <= length})


def patience(clocks: int) -> int:
    """Return after how many clocks without a move a core counts as stuck that takes so many for its longest row."""
    return _PATIENCE * clocks + 10_000


def select_outputs(program: Program, names: Sequence[str]) -> Program:
    """Return the program with some of its outputs.

    By default these are the codes, or else the first per element, and all per row.

    Raises:
        UsageError: there is no output of a name.
    """
    rows = [name for name, node in program.outputs.items() if node.kind is Kind.ROW]
    wanted = list(names)
    if not wanted:
        first = "codes" if "codes" in rows else rows[0]
        wanted = [first, *(name for name in program.outputs if name not in rows)]
    for name in wanted:
        if name not in program.outputs:
            raise UsageError(f"program {program.name} has no output {name!r}; it gives {', '.join(program.outputs)}")
    return replace(program, outputs={name: program.outputs[name] for name in wanted})


def describe_method(
    method: Method,
    options: Options,
    program: Program,
    name: str,
    fitted: Mapping[str, float | tuple[float, ...]],
) -> dict[str, object]:
    """Return which method hardware of a name computes, as plain values."""
    return {
        "schema": 1,
        "softq": __version__,
        "module": name,
        "method": method.name,
        "source": method.source,
        "options": options.to_json(),
        "fitted": dict(fitted),
        "scores": program.scores.value,
        "masked": program.masked,
    }


def describe_settings(settings: Settings) -> dict[str, object]:
    """Return what a core is built for, as plain values."""
    return {
        "length": settings.length,
        "lanes": settings.lanes,
        "reset": settings.reset,
        "packed": settings.packed,
        "cut": settings.cut,
        "products": settings.products,
    }
