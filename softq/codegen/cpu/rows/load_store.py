"""The row's memory: how values are read from it and written to it, in the types and widths that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows import floats
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.stored_rows import StoredRow
from softq.codegen.cpu.rows.tir import (  # fmt: skip
    BOOL,
    F32,
    Local,
    Memory,
    broadcast,
    cast,
    const,
    reinterpret,
    type_name,
)
from softq.rowprog.program import Node
from softq.rowprog.types import DType


@dataclass(frozen=True)
class Line:
    """A row of some array.

    Attributes:
        memory: The array.
        base: Where the row begins.
        nibbles: Whether it holds numbers of four bits, two per byte, the first one low.
    """

    memory: Memory
    base: Expr
    nibbles: bool = False

    def at(self, position: Expr) -> Expr:
        """Return where an element stands."""
        return tirx.Add(self.base, position)


@dataclass(frozen=True)
class RowMemory:
    """The memory of the row at hand.

    Attributes:
        scores: The scores.
        valid: The mask, and whether it has an element for each of the row's, else one for all; None without a mask.
        outputs: The row outputs by name.
        places: Where stored values stand.
        scratch: Rows of scratch by number.
    """

    scores: Line
    valid: tuple[Line, bool] | None
    outputs: Mapping[str, Line]
    places: Mapping[Node, StoredRow]
    scratch: Sequence[Line]

    def stored(self, node: Node) -> Line:
        """Return the memory of a stored value."""
        place = self.places[node]
        return self.scratch[place.slot] if place.output is None else self.outputs[place.output]

    def held(self, node: Node) -> str:
        """Return the type of the memory that a value is read from."""
        if node.op != "input":
            return self.stored(node).memory.name
        if node.attrs["name"] == "scores":
            return self.scores.memory.name
        assert self.valid is not None
        return self.valid[0].memory.name


def load(e: Emission, node: Node, row: RowMemory) -> Expr:
    """Return a value that stands in memory, in the type that it has at a place."""
    assert e.at is not None
    if node.op != "input":
        line = row.stored(node)
        return _unpacked(e, node, _read(e, line), line.memory.name)
    if node.attrs["name"] == "scores":
        x, name = _read(e, row.scores), row.scores.memory.name
        return x if name == F32 else e.convert(x, name, e.type_of(node))
    assert row.valid is not None
    line, along = row.valid
    x = _read(e, line) if along else broadcast(line.memory.load(line.base, 1), e.lanes)
    return tirx.NE(x, e.const(0, line.memory.name))


def _read(e: Emission, line: Line) -> Expr:
    assert e.at is not None
    if not e.masked or e.counted is None:
        return line.memory.load(line.at(e.at), e.lanes)
    # The lanes behind the last element repeat the first one: every lane is an element of the row.
    first = line.memory.load(line.base, 1)
    return line.memory.load_some(line.at(e.at), e.lanes, e.counted.get(), first)


def store(e: Emission, line: Line, x: Expr) -> None:
    """Write the elements of a place, those behind the row's end left out, as their memory holds them."""
    assert e.at is not None
    if line.nibbles:
        _store_nibbles(e, line, x, e.at)
    elif e.masked and e.counted is not None:
        line.memory.store_some(x, line.at(e.at), e.counted.get())
    else:
        line.memory.store(x, line.at(e.at), e.lanes)


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
        moved = tirx.Shuffle([x, e.const(0, name)], [tirx.const(i, "int32") for i in range(1, lanes + 1)])
        x = e.share(tirx.Select(broadcast(tirx.NE(odd, tirx.const(0, index)), lanes), moved, x), name)
        where = line.at(script.shift_right(tirx.Add(at, odd), one))
    pairs = Local.of(reinterpret(x, "uint16", lanes // 2), "uint16", lanes // 2).get()
    both = script.bitwise_or(pairs, script.shift_right(pairs, const(4, "uint16", lanes // 2)))
    two_each = cast(both, "uint16", name, lanes // 2)
    if not e.masked or e.counted is None:
        memory.store(two_each, where, lanes // 2)
        return
    ones = e.share(tirx.Select(e.counted.get(), e.const(1, "int8"), e.const(0, "int8")), "int8")
    even = tirx.Shuffle([ones], [tirx.const(i, "int32") for i in range(0, lanes, 2)])
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
