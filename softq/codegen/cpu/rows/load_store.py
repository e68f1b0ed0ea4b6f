"""The row's memory: where values stand in it that a later pass needs, and how they are read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import output_type
from softq.codegen.cpu.rows import floats, mve
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.tir import (  # fmt: skip
    BOOL,
    F32,
    Local,
    Memory,
    broadcast,
    cast,
    const,
    reinterpret,
    shuffle,
    type_name,
)
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, Program
from softq.rowprog.types import DType, Kind


@dataclass(frozen=True)
class Line:
    """A row of some array.

    Attributes:
        memory: The array.
        base: Where the row begins.
        nibbles: Whether it holds numbers of four bits, two per byte, the first one low.
        alike: Whether it holds one element, which all of the row have.
    """

    memory: Memory
    base: Expr
    nibbles: bool = False
    alike: bool = False

    def alone(self) -> Line:
        """Return the same row as an array that begins with it."""
        base = tirx.const(0, self.memory.index)
        return replace(self, memory=self.memory.beginning_at(self.base), base=base)

    def at(self, position: Expr) -> Expr:
        """Return where an element stands."""
        return tirx.Add(self.base, position)


@dataclass(frozen=True)
class StoredRow:
    """A row of memory for stored values.

    Attributes:
        output: Name of the output row, or None for scratch.
        slot: Number of the scratch row.
        dtype: What the memory holds; integers of 32 bits and fewer stand in a row of f32 by their bits.
    """

    output: str | None
    slot: int
    dtype: DType


@dataclass(frozen=True)
class RowMemory:
    """The memory of the row at hand.

    Attributes:
        scores: The scores.
        valid: The mask; None without one.
        outputs: The row outputs by name.
        places: Where stored values stand.
        scratch: Rows of scratch by number.
    """

    scores: Line
    valid: Line | None
    outputs: Mapping[str, Line]
    places: Mapping[Node, StoredRow]
    scratch: Sequence[Line]

    def stored(self, node: Node) -> Line:
        """Return the memory of a stored value."""
        place = self.places[node]
        return self.scratch[place.slot] if place.output is None else self.outputs[place.output]

    def line_of(self, node: Node) -> Line:
        """Return the memory that a value is read from."""
        if node.op != "input":
            return self.stored(node)
        if node.attrs["name"] == "scores":
            return self.scores
        assert self.valid is not None
        return self.valid


def place_stored_rows(
    program: Program, passes: Sequence[Phase], nibbles: Collection[str] = ()
) -> Mapping[Node, StoredRow]:
    """Return where each stored value stands: in an output row that is not written yet, else in scratch.

    Rows of nibbles hold nothing else.
    """
    busy: dict[StoredRow, int] = {}
    result: dict[Node, StoredRow] = {}
    written = {name: phase.number for phase in passes for name in phase.outputs}
    for phase in passes:
        grouped = {arg for node in phase.groups for arg in node.args}
        for node in (*phase.stored, *phase.groups):
            # The elements of groups are read once more, in the phase that writes their maxima.
            last = max((p.number for p in passes if node in p.loads), default=phase.number)
            last = max(last, phase.number + 1) if node in grouped else last
            result[node] = next(
                place
                for place in _candidates(program, node, nibbles)
                # Within one pass a row is read before it is written.
                if busy.get(place, -1) <= phase.number and (place.output is None or written[place.output] >= last)
            )
            busy[result[node]] = last
    return result


def _candidates(program: Program, node: Node, nibbles: Collection[str]) -> Iterator[StoredRow]:
    for name, value in program.outputs.items():
        held = output_type(program, name)
        if (
            value.kind is Kind.ROW
            and name not in nibbles
            and (held is node.dtype or (held is DType.F32 and node.dtype.bits <= 32))
        ):
            yield StoredRow(name, 0, held)
    slot = 0
    while True:
        yield StoredRow(None, slot, DType.U64)
        slot += 1


def load(e: Emission, node: Node, row: RowMemory) -> Expr:
    """Return a value that stands in memory, in the type that it has at a place."""
    line = row.line_of(node)
    x, name = _read(e, line), line.memory.name
    if node.op != "input":
        return _unpacked(e, node, x, name)
    if node.dtype is DType.BOOL:
        return tirx.NE(x, e.const(0, name))
    return x if name == F32 else e.convert(x, name, e.type_of(node))


def _read(e: Emission, line: Line) -> Expr:
    assert e.at is not None
    if line.alike:
        return broadcast(line.memory.load(line.base, 1), e.lanes)
    if not e.masked or e.counted is None:
        return line.memory.load(line.at(e.at), e.lanes)
    if e.left is not None:
        return line.memory.load_first(line.at(e.at), e.lanes, e.counted.get())
    # The lanes behind the last element repeat the first one: every lane is an element of the row.
    first = line.memory.load(line.base, 1)
    return line.memory.load_some(line.at(e.at), e.lanes, e.counted.get(), first)


def store(e: Emission, line: Line, x: Expr) -> None:
    """Write the elements of a place, those behind the row's end left out, as their memory holds them."""
    assert e.at is not None
    if line.nibbles:
        _store_nibbles(e, line, x, e.at)
    elif e.left is not None and e.counted is not None:
        line.memory.store_first(x, line.at(e.at), e.lanes, e.counted.get())
    elif e.masked and e.counted is not None:
        line.memory.store_some(x, line.at(e.at), e.counted.get())
    else:
        line.memory.store(x, line.at(e.at), e.lanes)


def store_pair(line: Line, at: Expr, first: Expr, second: Expr) -> None:
    """Write two numbers of four bits into a byte of a row."""
    name = line.memory.name
    upper = script.shift_left(second, tirx.const(4, name))
    line.memory.store(script.bitwise_or(first, upper), line.at(at), 1)


def _store_nibbles(e: Emission, line: Line, x: Expr, at: Expr) -> None:
    """Write numbers of four bits, two per byte; behind the last one of an odd row stands a 0."""
    index, memory, lanes = e.kernel.index, line.memory, e.lanes
    one, name = tirx.const(1, index), memory.name
    where = line.at(script.shift_right(at, one))
    if lanes == 1:
        with script.If(tirx.EQ(script.bitwise_and(at, one), tirx.const(0, index))):
            with script.Then():
                memory.store(x, where, 1)
            with script.Else():
                upper = script.shift_left(x, tirx.const(4, name))
                memory.store(script.bitwise_or(memory.load(where, 1), upper), where, 1)
        return
    x = e.share(x, name)
    if e.masked and e.counted is not None:
        x = e.share(tirx.Select(e.counted.get(), x, e.const(0, name)), name)
    elif e.counted is not None:
        # A block that overlaps and begins at an odd position: its first element stands in a byte that is written.
        odd = Local.of(script.bitwise_and(at, one), index, 1).get()
        moved = shuffle([x, e.const(0, name)], range(1, lanes + 1))
        x = e.share(tirx.Select(broadcast(tirx.NE(odd, tirx.const(0, index)), lanes), moved, x), name)
        where = line.at(script.shift_right(tirx.Add(at, odd), one))
    pairs = Local.of(reinterpret(x, "uint16", lanes // 2), "uint16", lanes // 2).get()
    both = script.bitwise_or(pairs, script.shift_right(pairs, const(4, "uint16", lanes // 2)))
    two_each = cast(both, "uint16", name, lanes // 2)
    if not e.masked or e.counted is None:
        memory.store(two_each, where, lanes // 2)
        return
    if e.left is not None:
        filled = script.shift_right(tirx.Add(e.left, one), one)
        memory.store_first(two_each, where, lanes // 2, mve.predicate(filled, lanes // 2))
        return
    ones = e.share(tirx.Select(e.counted.get(), e.const(1, "int8"), e.const(0, "int8")), "int8")
    even = shuffle([ones], range(0, lanes, 2))
    memory.store_some(two_each, where, tirx.NE(even, const(0, "int8", lanes // 2)))


def written(e: Emission, node: Node, name: str) -> Expr:
    """Return a value as an output's memory holds it."""
    held = e.type_of(node)
    x = e.value(node)
    if held == BOOL:
        return tirx.Select(x, e.const(1, name), e.const(0, name))
    if held == name:
        return x
    return floats.from_integer(e, x, held) if name == F32 else e.convert(x, held, name)


def packed(e: Emission, node: Node, name: str) -> Expr:
    """Return a value as the memory of stored rows holds it."""
    held = e.type_of(node)
    x = e.value(node)
    if held == name:
        return x
    if held == BOOL:
        x, held = tirx.Select(x, e.const(1, "uint32"), e.const(0, "uint32")), "uint32"
    if held == F32:
        x, held = reinterpret(x, "uint32", e.lanes), "uint32"
    if name == F32:
        return reinterpret(cast(x, held, "uint32", e.lanes), F32, e.lanes)
    return cast(x, held, name, e.lanes)


def _unpacked(e: Emission, node: Node, x: Expr, name: str) -> Expr:
    """Return a stored value in the type that it has here."""
    held = e.type_of(node)
    if held == name:
        return x
    if name == F32:
        x, name = reinterpret(x, "uint32", e.lanes), "uint32"
    if held == F32:
        return reinterpret(cast(x, name, "uint32", e.lanes), F32, e.lanes)
    if held == BOOL:
        return tirx.NE(x, e.const(0, name))
    # The bits of the stored number, then with its sign to the width of this pass.
    exact = name if node.dtype is DType.BOOL else type_name(node.dtype)
    return cast(cast(x, name, exact, e.lanes), exact, held, e.lanes)
