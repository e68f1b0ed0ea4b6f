"""The cells that a module comes to, counted before synthesis: what is asked for, bit by bit, from its outputs on.

Nothing is placed. Logic (module_bits.py) is packed into tables of four inputs as it comes (packing.py). A sum is a
chain of carries as long as the bits that are asked for. A register has the bits that something reads; its conditions
are one net that enables it, and a constant that it takes last is its reset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from softq.codegen.verilog.expressions import parse
from softq.codegen.verilog.module import Memory, Module, Port
from softq.codegen.verilog.module_bits import Bits, Key, ModuleBits, Taken
from softq.codegen.verilog.packing import Bit


@dataclass(frozen=True)
class BlockRead:
    """What is read from a block of memory.

    Attributes:
        name: Name of the memory.
        memory: The memory.
        beside_write: Whether it is read at the position that is written.
        bits: Bits of a word that are asked for.
        moved: Those whose only reader is a register that takes them at each clock: the block has one for it.
    """

    name: str
    memory: Memory
    beside_write: bool
    bits: frozenset[int]
    moved: frozenset[int]


@dataclass(frozen=True)
class Cells:
    """What a module is made of.

    Attributes:
        tables: Tables of four inputs.
        registers: Bits of registers, those beside blocks of memory and multipliers too.
        chains: Bits of each sum, difference and comparison.
        products: How many products there are.
        reads: What is read from blocks of memory.
        read_beside: Memories that are read otherwise, once for each reader: distributed ones, and blocks whose register
            does not take a word at each clock.
    """

    tables: int
    registers: int
    chains: tuple[int, ...]
    products: int
    reads: tuple[BlockRead, ...]
    read_beside: tuple[Memory, ...]


def count_cells(module: Module, ports: Sequence[Port]) -> Cells:
    """Return what a module with these ports is made of."""
    return _Count(module, ports).run()


class _Count:
    def __init__(self, module: Module, ports: Sequence[Port]) -> None:
        self._values = ModuleBits(module, ports)
        self._module, self._packing = module, self._values.packing
        self._asked: set[Bit] = set()
        self._lengths: dict[Key, int] = {}
        self._readers: dict[Bit, list[Taken | Key | None]] = {}

    def run(self) -> Cells:
        roots = [
            *self._values.outputs,
            *(name for name in sorted(self._module.connected) if name in self._module.assigned),
        ]
        waiting = [bit for name in roots for bit in self._values.value(name)]
        while waiting:
            bit = self._packing.table(waiting.pop())
            if bit.support and bit not in self._asked:
                self._asked.add(bit)
                waiting += self._follow(bit)
        kinds = [bit.of[0] for bit in self._asked if isinstance(bit.of, tuple)]
        reads = {bit.of[1:3] for bit in self._asked if isinstance(bit.of, tuple) and bit.of[0] == "read"}
        joined = {key: tables for key in self._lengths if (tables := self._joining(key)) is not None}
        return Cells(
            kinds.count("table") + sum(joined.values()),
            kinds.count("register"),
            tuple(sorted(length for key, length in self._lengths.items() if key[0] != "*" and key not in joined)),
            sum(key[0] == "*" for key in self._lengths),
            tuple(self._block_reads()),
            tuple(self._module.memories[name] for name in sorted(str(read[0]) for read in reads)),
        )

    # What a bit follows from

    def _follow(self, bit: Bit) -> Bits:
        """Return what a leaf follows from, and note who reads it."""
        assert isinstance(bit.of, tuple)
        kind, what, *more = bit.of
        found: list[tuple[Bit, Taken | Key | None]] = []
        if kind == "table":
            found += ((leaf, None) for leaf in what.support)
        elif kind == "beside":
            found += ((leaf, None) for leaf in bit.of[1:])
        elif kind == "chain":
            # A bit of a sum asks for those below, too.
            _, a, b = what
            done = self._lengths.get(what, 0)
            self._lengths[what] = max(done, more[0] + 1)
            found += ((x, what) for side in (a, b) for x in side[done : more[0] + 1])
        elif kind == "product":
            if what not in self._lengths:
                self._lengths[what] = 0
                found += ((x, what) for side in what[1:] for x in side)
        elif kind == "read":
            found += ((x, None) for x in (*more[0], *self._written(what)))
        elif kind == "word":
            (step,) = self._values.steps[what]
            address = parse(step.expression)
            found += ((x, None) for x in (*self._values.bits(address.args[0]), *self._written(address.name)))
        elif kind == "register":
            taken = self._values.take(what)[more[0]]
            found.append((taken.data, taken))
            found += ((x, None) for x in (taken.enable, taken.reset) if x is not None)
        for other, reader in found:
            self._readers.setdefault(self._packing.table(other), []).append(reader)
        return [other for other, _ in found]

    def _written(self, memory: str) -> Bits:
        found: Bits = []
        for step in self._values.steps.get(memory, []):
            found += self._values.condition(step.when)
            found += self._values.bits(parse(step.target).args[0])
            found += self._values.bits(parse(step.expression), self._module.memories[memory].width)
        return found

    # What is joined, and registers beside blocks

    def _joining(self, key: Key) -> int | None:
        """Return the tables that join three bits to two, where all that reads a sum is another sum: then both are one
        chain. None where it is another."""
        bits = [self._packing.leaf(("chain", key, at)) for at in range(self._lengths[key])]
        readers = {reader for bit in bits for reader in self._readers.get(bit, [])}
        if key[0] not in "+-" or len(readers) != 1:
            return None
        (reader,) = readers
        if not isinstance(reader, tuple) or reader[0] not in "+-":
            return None
        side = next(side for side in reader[1:] if bits[0] in side)
        low, other = side.index(bits[0]), reader[2] if side is reader[1] else reader[1]
        return 2 * sum(
            bool(a.support and b.support and c.support) for a, b, c in zip(key[1], key[2], other[low:], strict=False)
        )

    def _block_reads(self) -> Iterator[BlockRead]:
        for name in self._module.registers:
            if not self._values.is_word(name):
                continue
            value = self._values.value(name)
            asked = [at for at, bit in enumerate(value) if bit in self._asked]
            moved = [at for at in asked if self._is_moved(value[at])]
            read = parse(self._values.steps[name][0].expression)
            writes = [parse(step.target).args[0] for step in self._values.steps.get(read.name, [])]
            memory, beside = self._module.memories[read.name], read.args[0] in writes
            if asked:
                yield BlockRead(read.name, memory, beside, frozenset(asked), frozenset(moved))

    def _is_moved(self, bit: Bit) -> bool:
        """Say whether a register that takes a bit at each clock is all that reads it."""
        readers = self._readers.get(bit, [])
        return len(readers) == 1 and isinstance(readers[0], Taken) and readers[0].is_plain
