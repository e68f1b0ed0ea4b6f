"""Lookup tables: shifts where the entries are powers of two, permutes on AVX-512 and AVX2, else loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import Shift, as_shift
from softq.codegen.cpu.rows.tir import (
    F32,
    Local,
    Memory,
    bits_of,
    broadcast,
    cast,
    const,
    intrinsic,
    opaque,
    reinterpret,
    type_name,
    vector_of,
)  # fmt: skip
from softq.rowprog.program import Node, Number, table_of
from softq.rowprog.types import DType

_CHUNK = 16
"""Entries that are copied at once; copies are padded to it."""

_BY_WIDTH = (DType.U8, DType.I8, DType.U16, DType.I16, DType.I32, DType.U32, DType.I64, DType.U64)

_LARGEST = {16: 256, 8: 32}
"""By lanes of 32 bits: entries up to which permutes are used; beyond, loading each lane costs no more."""


@dataclass(frozen=True)
class Table:
    """A table and how it is looked up.

    Attributes:
        memory: Where the entries stand.
        start: Position of the first one.
        size: Number of entries.
        values: The entries, if they are known.
        shift: What they are, where that is a shift.
        registers: The bytes of the entries in vectors, plane by plane, where they are looked up there.
    """

    memory: Memory
    start: Expr
    size: int
    values: tuple[Number, ...] = ()
    shift: Shift | None = None
    registers: tuple[tuple[Local, ...], ...] = ()

    def is_shift(self, index: str) -> bool:
        """Say whether the entries are shifts that have the width of positions of a type."""
        return self.shift is not None and self.shift.bits <= bits_of(index)

    def look_up(self, at: Expr, index: str, result: str, lanes: int, permutes: bool) -> Expr:
        """Return the entries at positions of type `index`, as numbers of type `result`.

        Args:
            at: The positions; used more than once.
            index: Their type.
            result: Type of the result.
            lanes: Number of positions.
            permutes: Whether x86's permutes may be used.
        """
        if self.shift is not None and (lanes == 1 or self.is_shift(index)):
            return _shifted(self.shift, at, index, result, lanes)
        if permutes and bits_of(index) == 32 and self.size <= _LARGEST.get(lanes, 0):
            return self._permuted(at, index, result, lanes)
        positions = tirx.Add(broadcast(self.start, lanes), cast(at, index, self.memory.index, lanes))
        # By way of memory: TVM's analysis of what is read fails on some sums of vectors.
        positions = Local.of(positions, self.memory.index, lanes).get()
        return cast(self.memory.load(positions, 1), self.memory.name, result, lanes)

    def _permuted(self, at: Expr, index: str, result: str, lanes: int) -> Expr:
        single, double = {
            16: ("llvm.x86.avx512.permvar.si.512", "llvm.x86.avx512.vpermi2var.d.512"),
            8: ("llvm.x86.avx2.permd", ""),
        }[lanes]
        registers = [self._register(first, result, lanes) for first in range(0, self.size, lanes)]
        position = cast(at, index, "int32", lanes)
        # Permutes look at the low bits of a position alone; selects choose between what they give.
        step = lanes * (2 if double else 1)
        leaves: list[Expr] = []
        for k in range(0, len(registers), step // lanes):
            if double and k + 1 < len(registers):
                leaves.append(intrinsic(double, "int32", lanes, registers[k], position, registers[k + 1]))
            else:
                leaves.append(intrinsic(single, "int32", lanes, registers[k], position))

        def chosen(low: int, high: int) -> Expr:
            if high - low == 1:
                return leaves[low]
            middle = (low + high) // 2
            below = tirx.LT(position, const(middle * step, "int32", lanes))
            return tirx.Select(below, chosen(low, middle), chosen(middle, high))

        return reinterpret(chosen(0, len(leaves)), result, lanes)

    def _register(self, first: int, result: str, lanes: int) -> Expr:
        if self.values:
            part = [*self.values[first : first + lanes], *(0,) * lanes][:lanes]
            return reinterpret(vector_of(entry_bits(part, result), "uint32"), "int32", lanes)
        at = tirx.Add(self.start, tirx.const(first, self.memory.index))
        return reinterpret(cast(self.memory.load(at, lanes), self.memory.name, result, lanes), "int32", lanes)


def entry_bits(values: Sequence[Number], name: str) -> list[int]:
    """Return numbers as the unsigned ones with the same bits."""
    if name == F32:
        return [int(np.float32(v).view(np.uint32)) for v in values]
    return [int(v) & ((1 << bits_of(name)) - 1) for v in values]


def _shifted(shift: Shift, at: Expr, index: str, result: str, lanes: int) -> Expr:
    # Conversions of signed numbers are instructions everywhere.
    name = f"int{shift.bits}" if shift.first < 1 << (shift.bits - 1) else f"uint{shift.bits}"
    x = script.shift_right(const(shift.first, name, lanes), cast(at, index, name, lanes))
    x = cast(x, name, result, lanes)
    return x if shift.scale == 1.0 else tirx.Mul(x, const(shift.scale, F32, lanes))


def entry_type(node: Node) -> str:
    """Return the type of a table's entries in memory."""
    return "uint8" if node.dtype is DType.BOOL else type_name(node.dtype)


def least_entry_type(node: Node) -> str:
    """Return the narrowest type of integers that holds a table's entries; floats keep theirs."""
    values = table_of(node)
    if not node.dtype.is_integer:
        return entry_type(node)
    low, high = int(min(values, default=0)), int(max(values, default=0))
    return type_name(next(t for t in _BY_WIDTH if t.low <= low and high <= t.high))


def constant_table(node: Node, index: str, given: Memory | None = None) -> Table:
    """Return a table of the program; positions are of type `index`.

    Args:
        node: The table.
        index: The type.
        given: Where its entries stand; None to write them to the stack.
    """
    values = table_of(node)
    shift = as_shift(values) if node.dtype is not DType.BOOL else None
    if given is not None:
        return Table(given, tirx.const(0, index), len(values), values, shift)
    name = entry_type(node)
    held = entry_bits(values, name)
    memory, unsigned = _copy(len(values), name, index), f"uint{bits_of(name)}"
    for first in range(0, len(values), _CHUNK):
        part = [*held[first : first + _CHUNK], *(0,) * _CHUNK][:_CHUNK]
        x = opaque(vector_of(part, unsigned), unsigned, _CHUNK)
        memory.store(reinterpret(x, name, _CHUNK), tirx.const(first, index), _CHUNK)
    return Table(memory, tirx.const(0, index), len(values), values, shift)


def given_table(memory: Memory, start: Expr, size: int, padded: bool) -> Table:
    """Return a table of the caller's; a padded one is copied, for vectors that reach beyond its end."""
    if not padded or size % _CHUNK == 0:
        return Table(memory, start, size)
    copy = _copy(size, memory.name, memory.index)
    for first in range(0, size - size % _CHUNK, _CHUNK):
        at = tirx.const(first, memory.index)
        copy.store(memory.load(tirx.Add(start, at), _CHUNK), at, _CHUNK)
    last = size - size % _CHUNK
    copy.store(const(0, memory.name, _CHUNK), tirx.const(last, memory.index), _CHUNK)
    for i in range(last, size):
        at = tirx.const(i, memory.index)
        copy.store(memory.load(tirx.Add(start, at), 1), at, 1)
    return Table(copy, tirx.const(0, memory.index), size)


def _copy(size: int, name: str, index: str) -> Memory:
    padded = (size + _CHUNK - 1) // _CHUNK * _CHUNK
    return Memory(script.alloc_buffer((padded,), name, scope="local"), name, index)
