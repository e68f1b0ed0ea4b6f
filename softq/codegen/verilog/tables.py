"""Constant tables: small ones as logic, others as a memory that is read at a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softq.codegen.verilog.module import Module
from softq.codegen.verilog.rules import LOGIC_INPUTS
from softq.codegen.verilog.signals import Signal, literal

MEMORY_FROM = 64
"""Tables of four inputs that a table in logic may take; a larger one is a block of memory."""


@dataclass(frozen=True)
class Table:
    """A constant table.

    Attributes:
        entries: Its entries.
        width: Bits of an entry.
    """

    entries: tuple[int, ...]
    width: int

    @property
    def address(self) -> int:
        """Bits of a position."""
        return max((len(self.entries) - 1).bit_length(), 1)

    @property
    def logic(self) -> int:
        """Tables of four inputs that it takes at most, if it is logic."""
        return self.width << max(self.address - LOGIC_INPUTS, 0)

    @property
    def in_memory(self) -> bool:
        """Whether it is a block of memory."""
        return self.logic > MEMORY_FROM

    @property
    def levels(self) -> float:
        """How long it takes as logic."""
        return 1 + max(self.address - LOGIC_INPUTS, 0) / 2


class Tables:
    """The tables of a module; each stands there once where it is logic, and once for each reader where it is memory.

    Args:
        module: The module.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._functions: dict[Table, str] = {}
        self._memories = 0

    def look_up(self, table: Table, position: Signal) -> str:
        """Return the entry of a table in logic, as an expression."""
        if table not in self._functions:
            self._functions[table] = f"table_{len(self._functions)}"
            self._define(table, self._functions[table])
        return f"{self._functions[table]}({position.to_width(table.address)})"

    def read(self, table: Table, position: Signal, name: str) -> Signal:
        """Return the entry of a table in memory, one clock later."""
        self._memories += 1
        memory = f"rom_{self._memories}"
        self._module.memory(memory, table.width, len(table.entries), 'rom_style = "block"')
        self._module.line("initial begin")
        for line in _lines([f"{memory}[{at}] = {literal(e, table.width)};" for at, e in enumerate(table.entries)]):
            self._module.line(f"    {line}")
        self._module.line("end")
        return self._module.register(name, table.width, f"{memory}[{position.to_width(table.address)}]")

    def _define(self, table: Table, name: str) -> None:
        width = f"[{table.width - 1}:0] " if table.width > 1 else ""
        position = f"[{table.address - 1}:0] " if table.address > 1 else ""
        self._module.line(f"function {width}{name}(input {position}at);")
        self._module.line("    case (at)")
        cases = [
            f"{literal(at, table.address)}: {name} = {literal(e, table.width)};" for at, e in enumerate(table.entries)
        ]
        for line in _lines(cases):
            self._module.line(f"        {line}")
        self._module.line(f"        default: {name} = {table.width}'bx;")
        self._module.line("    endcase")
        self._module.line("endfunction")


def _lines(parts: Sequence[str], size: int = 4) -> list[str]:
    return [" ".join(parts[at : at + size]) for at in range(0, len(parts), size)]
