"""Maxima over groups of elements: a loop of its own between two passes, from memory to memory.

A group is a power of two of elements from a multiple of it on: as many as one load takes where there are vectors, and
then it does not matter how the passes before and behind take the row.
"""

from __future__ import annotations

import math

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.lanes import reduce_lanes
from softq.codegen.cpu.rows.load_store import RowMemory, load, packed, store
from softq.codegen.cpu.rows.tir import F32, Local, broadcast
from softq.rowprog.program import Node, size_of


def find_group_maxima(node: Node, row: RowMemory, scalars: Emission) -> None:
    """Emit what writes the greatest element of each group to the memory of all its elements."""
    kernel, size = scalars.kernel, size_of(node)
    index, length = kernel.index, kernel.length
    shift = tirx.const(size.bit_length() - 1, index)
    groups = Local.of(script.shift_right(length, shift), index, 1).get()
    if kernel.processor.lanes(32, True) > 1:
        with script.serial(groups) as group:
            _whole_group(node, row, scalars, script.shift_left(group, shift))
    else:
        with script.serial(groups) as group:
            first = Local.of(script.shift_left(group, shift), index, 1).get()
            _one_by_one(node, row, scalars, first, tirx.const(size, index))
    done = Local.of(script.shift_left(groups, shift), index, 1).get()
    rest = Local.of(tirx.Sub(length, done), index, 1).get()
    with script.If(tirx.LT(tirx.const(0, index), rest)), script.Then():
        _one_by_one(node, row, scalars, done, rest)


def _whole_group(node: Node, row: RowMemory, scalars: Emission, first: Expr) -> None:
    place = Emission(scalars.kernel, scalars, lanes=size_of(node), bits=32, at=first)
    elements = Local.of(load(place, node.args[0], row), F32, place.lanes)
    best = Local.of(reduce_lanes(elements, _greater), F32, 1)
    place.keep(node, broadcast(best.get(), place.lanes))
    _write(node, row, place)


def _one_by_one(node: Node, row: RowMemory, scalars: Emission, first: Expr, count: Expr) -> None:
    best = Local.of(scalars.const(-math.inf, F32), F32, 1)
    with script.serial(count) as i:
        place = Emission(scalars.kernel, scalars, bits=32, at=tirx.Add(first, i))
        best.set(_greater(best.get(), Local.of(load(place, node.args[0], row), F32, 1).get()))
    with script.serial(count) as i:
        place = Emission(scalars.kernel, scalars, bits=32, at=tirx.Add(first, i))
        place.keep(node, best.get())
        _write(node, row, place)


def _write(node: Node, row: RowMemory, place: Emission) -> None:
    line = row.stored(node)
    store(place, line, packed(place, node, line.memory.name))


def _greater(a: Expr, b: Expr) -> Expr:
    return tirx.Select(tirx.LT(a, b), b, a)
