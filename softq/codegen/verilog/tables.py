"""Tables: small constant ones as logic, larger ones and those that are written as a memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from softq.codegen.verilog.axi_lite import VALUE, place_of, read_back, write_condition
from softq.codegen.verilog.module import Module, four_a_line
from softq.codegen.verilog.registers import WritableTable
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
        writable: Tables behind the register port, by name; each stands there once for each reader.
    """

    def __init__(self, module: Module, writable: Mapping[str, WritableTable]) -> None:
        self._module = module
        self.writable = writable
        self._read_back: set[WritableTable] = set()
        self._functions: dict[Table, str] = {}
        self._memories = 0

    def look_up(self, table: Table | WritableTable, position: Signal) -> str:
        """Return the entry of a table that is no block of memory, as an expression."""
        if isinstance(table, WritableTable):
            return f"{self._write(table)}[{position.to_width(table.address)}]"
        if table not in self._functions:
            self._functions[table] = f"table_{len(self._functions)}"
            self._module.function(self._functions[table], table.address, table.width, table.entries)
        return f"{self._functions[table]}({position.to_width(table.address)})"

    def read(self, table: Table | WritableTable, position: Signal, name: str) -> Signal:
        """Return the entry of a table in memory, one clock later."""
        if isinstance(table, WritableTable):
            memory = self._write(table)
        else:
            memory = self._claim("rom")
            self._module.memory(memory, table.width, len(table.entries), 'rom_style = "block"')
            self._fill(memory, enumerate(table.entries), table.width)
        return self._module.register(name, table.width, f"{memory}[{position.to_width(table.address)}]")

    def _write(self, table: WritableTable) -> str:
        """Return a memory that the register port writes; the first one of a table is read back."""
        memory = self._claim("ram")
        # A small one has no style: devices without distributed memory take flip-flops.
        style = 'ram_style = "block", no_rw_check' if table.in_memory else ""
        self._module.memory(memory, table.width, 1 << table.address, style)
        entries = (
            (head << table.entry_bits | at, e) for head, es in enumerate(table.initial) for at, e in enumerate(es)
        )
        self._fill(memory, entries, table.width)
        place = place_of(table)
        self._module.clocked(f"{memory}[{place}]", f"{VALUE}[{table.width - 1}:0]", when=write_condition(table))
        if table not in self._read_back:
            self._read_back.add(table)
            self._module.register(read_back(table), table.width, f"{memory}[{place}]")
        return memory

    def _claim(self, kind: str) -> str:
        self._memories += 1
        return f"{kind}_{self._memories}"

    def _fill(self, memory: str, entries: Iterable[tuple[int, int]], width: int) -> None:
        self._module.line("initial begin")
        for line in four_a_line([f"{memory}[{at}] = {literal(entry, width)};" for at, entry in entries]):
            self._module.line(f"    {line}")
        self._module.line("end")
