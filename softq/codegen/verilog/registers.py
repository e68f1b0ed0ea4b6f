"""Tables that are written while a core runs: where they lie behind the register port, and what they hold at first.

Each entry has a word of four bytes. A table begins at a multiple of what it takes, so that a part of the address is the
table, a part the head, and a part the entry; what no table takes is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.rules import LOGIC_INPUTS
from softq.codegen.verilog.signals import shape
from softq.errors import RefusalError
from softq.rowprog.program import Node, Param, param_of
from softq.rowprog.ranges.interval import Interval

WORD = 4
"""Bytes of a word of the port."""

WORD_BITS = 8 * WORD

STATUS = 0
"""Address of the word that is 1 while a row is in the core, else 0."""

_LOGIC_ENTRIES = 32
"""Entries of all heads up to which a table is distributed memory; a larger one is a block of memory."""

Entries = tuple[tuple[int, ...], ...]
"""The entries of a table for each head."""


@dataclass(frozen=True)
class WritableTable:
    """A table behind the register port.

    Attributes:
        name: Its name in the program.
        meaning: What it is.
        base: Address of the first entry of the first head, in bytes.
        low: Least entry that is taken.
        high: Greatest entry that is taken.
        initial: What it holds before it is written.
    """

    name: str
    meaning: str
    base: int
    low: int
    high: int
    initial: Entries

    @property
    def size(self) -> int:
        """Entries for one head."""
        return len(self.initial[0])

    @property
    def heads(self) -> int:
        """Heads that have entries of their own."""
        return len(self.initial)

    @property
    def entry_bits(self) -> int:
        """Bits of an entry's position for one head."""
        return max((self.size - 1).bit_length(), 1)

    @property
    def address(self) -> int:
        """Bits of a position: the entry, then the head."""
        return self.entry_bits + (self.heads - 1).bit_length()

    @property
    def stride(self) -> int:
        """Bytes from an entry of one head to that of the next."""
        return WORD << self.entry_bits

    @property
    def width(self) -> int:
        """Bits of an entry."""
        return shape(Interval(self.low, self.high))[0]

    @property
    def signed(self) -> bool:
        """Whether entries have a sign."""
        return self.low < 0

    @property
    def in_memory(self) -> bool:
        """Whether it is a block of memory."""
        return 1 << self.address > _LOGIC_ENTRIES

    @property
    def levels(self) -> float:
        """How long it takes as distributed memory."""
        return 1 + max(self.address - LOGIC_INPUTS, 0) / 2

    def at(self, head: int, entry: int) -> int:
        """Return the address of an entry."""
        return self.base + head * self.stride + entry * WORD

    def describe(self) -> dict[str, object]:
        """Return what a driver has to know, as plain values."""
        return {
            "name": self.name,
            "meaning": self.meaning,
            "address": self.base,
            "bits": self.width,
            "signed": self.signed,
            "low": self.low,
            "high": self.high,
            "entries": self.size,
            "heads": self.heads,
            "head_stride": self.stride,
            "initial": [list(entries) for entries in self.initial],
        }


def place_tables(params: Iterable[Node], initial: Mapping[str, Sequence[Sequence[int]]]) -> tuple[WritableTable, ...]:
    """Return tables with their addresses.

    Args:
        params: The run-time parameters of a program.
        initial: What they hold at first, for each head, by name.

    Raises:
        RefusalError: a parameter is no table, or its entries are wider than a word.
    """
    found: list[WritableTable] = []
    free = STATUS + WORD
    for param in map(param_of, params):
        _check(param)
        entries = tuple(tuple(map(int, head)) for head in initial[param.name])
        table = WritableTable(param.name, param.meaning, 0, int(param.low), int(param.high), entries)
        whole = WORD << table.address
        base = -(-free // whole) * whole
        found.append(WritableTable(table.name, table.meaning, base, table.low, table.high, entries))
        free = base + whole
    return tuple(found)


def address_bits(tables: Sequence[WritableTable]) -> int:
    """Return the bits of an address of the port."""
    return (tables[-1].base + (WORD << tables[-1].address) - 1).bit_length()


def _check(param: Param) -> None:
    if param.size is None:
        raise RefusalError(f"parameter {param.name} is a number; registers of a core hold tables")
    bits = Interval(param.low, param.high).bits
    if bits > WORD_BITS:
        raise RefusalError(f"parameter {param.name} has {bits} bits; a register of a core has {WORD_BITS}")
