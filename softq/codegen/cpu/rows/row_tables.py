"""Tables that are made once per row: of what follows from one byte of an element and from numbers of the row.

What is computed after the sum often is such a value: a quotient, a logarithm of a share. For a long row its entries
for all values of the byte are computed first, as elements of a row that holds each of them once, and then looked up.
Entries whose byte does not occur in the row may be anything, so that nothing may depend on them: no position in a table
and no divisor is made of the byte and of the row's numbers together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.script.ir_builder import tirx as script

from softq.codegen.common import carriers
from softq.codegen.cpu.rows import planes
from softq.codegen.cpu.rows.emission import KernelContext
from softq.codegen.cpu.rows.lane_widths import bytes_of_entry
from softq.codegen.cpu.rows.load_store import Line, RowMemory, StoredRow
from softq.codegen.cpu.rows.tables import Table, constant_table
from softq.codegen.cpu.rows.tir import F32, Memory
from softq.rowprog.ops import OPS
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, walk
from softq.rowprog.types import DType, Kind

ENTRIES = 256
LEAST_LENGTH = 384
"""Elements from which a row is worth its tables."""

_DEAR_COST = 4
_BYTE = "byte"
"""Name of the row that holds each value of the byte once."""


@dataclass(frozen=True)
class RowTables:
    """The tables of one pass.

    Attributes:
        byte: What they are looked up at.
        nodes: The values that are looked up, with the bytes of their entries.
        inner: What is computed for each entry, arguments first.
        rows: What is left to be computed for each element.
    """

    byte: Node
    nodes: Mapping[Node, int]
    inner: tuple[Node, ...]
    rows: tuple[Node, ...]


def find(kernel: KernelContext, phase: Phase, wanted: Iterable[Node]) -> RowTables | None:
    """Return the tables of a pass, or None where they are not worth their while.

    Args:
        kernel: What the whole kernel shares.
        phase: The pass.
        wanted: The row values that are written or reduced.
    """
    # Before the first reduction there are no numbers of the row: what follows from the byte is the same in all rows.
    if not phase.number or kernel.processor.byte_entries < ENTRIES:
        return None
    wanted, each = list(dict.fromkeys(wanted)), kernel.processor.cost_of_look_up
    best: tuple[int, RowTables] | None = None
    for byte in (*phase.loads, *phase.rows):
        low, high = carriers.interval(byte, kernel.proof) if byte.dtype.is_integer else (-1, 0)
        if not 0 <= low <= high <= 255:
            continue
        nodes: dict[Node, int] = {}
        gain = 0
        for node in wanted:
            inner, size = _inner(node, byte, phase), bytes_of_entry(node, kernel)
            cost = sum(_DEAR_COST if OPS[n.op].cost == "dear" else 1 for n in inner or ())
            if inner is not None and size and cost > each * size:
                nodes[node] = size
                gain += cost - each * size
        if gain and (best is None or gain > best[0]):
            below = {n for node in nodes for n in _inner(node, byte, phase) or ()}
            inner = tuple(n for n in phase.rows if n in below)
            best = gain, RowTables(byte, nodes, inner, _left(phase, wanted, byte, nodes))
    return None if best is None else best[1]


def _inner(node: Node, byte: Node, phase: Phase) -> set[Node] | None:
    """Return the row values between a byte and a value; None if that needs anything else of the element."""
    inner = {node}
    for value in reversed(phase.rows):
        if value in inner and value is not byte:
            inner.update(arg for arg in value.args if arg.kind is Kind.ROW and arg.op != "const")
    inner.discard(byte)
    if node is byte or any(value not in phase.rows or value.op in ("scan", "index") for value in inner):
        return None
    # A position or a divisor may be made of the byte, or of the row's numbers, but not of both.
    loose = [value.args[1] for value in inner if value.op in ("lut", "divide")]
    return None if any(_is_mixed(value, byte) for value in loose) else inner


def _is_mixed(value: Node, byte: Node) -> bool:
    """Say whether a row value is made of the byte and of numbers of the row."""
    below = walk([value], {byte}) if value.kind is Kind.ROW else ()
    return any(node.kind is Kind.SCALAR and node.op != "const" for node in below)


def _left(phase: Phase, wanted: Sequence[Node], byte: Node, nodes: Mapping[Node, int]) -> tuple[Node, ...]:
    """Return the row values that are computed for each element beside those that are looked up."""
    used = set(wanted)
    for node in reversed(phase.rows):
        if node in used:
            used.update([byte] if node in nodes else node.args)
    return tuple(node for node in phase.rows if node in used)


class Entries:
    """The memory of a pass's tables.

    Args:
        kernel: What the whole kernel shares.
        found: The tables.
    """

    def __init__(self, kernel: KernelContext, found: RowTables) -> None:
        self._kernel, self._found = kernel, found
        self._memories: dict[Node, Memory] = {}
        for node, size in found.nodes.items():
            low = carriers.interval(node, kernel.proof)[0] if node.dtype.is_integer else 0
            signed = "int8" if low < 0 else "uint8"
            name = {1: signed, 2: "uint16"}.get(size, F32 if node.dtype is DType.F32 else "uint32")
            self._memories[node] = Memory(script.alloc_buffer((ENTRIES,), name, scope="local"), name, kernel.index)

    def made(self) -> tuple[KernelContext, Phase, RowMemory, Mapping[str, Node]]:
        """Return the pass that makes the tables: its kernel, what it computes, its memory, and what it writes."""
        kernel, zero = self._kernel, tirx.const(0, self._kernel.index)
        every = Node("table", (), DType.U8, Kind.TABLE, {"values": tuple(range(ENTRIES))})
        given = Line(constant_table(every, kernel.index).memory, zero)
        names = {f"table{i}": node for i, node in enumerate(self._memories)}
        lines = {name: Line(self._memories[node], zero) for name, node in names.items()}
        places = {self._found.byte: StoredRow(_BYTE, 0, DType.U8)}
        row = RowMemory(given, None, {**lines, _BYTE: given}, places, ())
        phase = Phase(1, (), (self._found.byte,), self._found.inner, (), (), (), (), tuple(names))
        return replace(kernel, length=tirx.const(ENTRIES, kernel.index)), phase, row, names

    def kernel(self) -> KernelContext:
        """Return the kernel for the elements; the tables are made, and their entries go to registers here."""
        zero, processor = tirx.const(0, self._kernel.index), self._kernel.processor
        tables: dict[Node, Table] = {}
        for node, memory in self._memories.items():
            table = Table(memory, zero, ENTRIES)
            tables[node] = replace(table, registers=planes.registers(table, self._found.nodes[node], processor))
        return replace(self._kernel, row_tables={node: (tables[node], self._found.byte) for node in tables})
