"""Kernels of one work item by which steps tell the driver something, or take what a round of a loop needs."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.compiler.tir.kernel_function import kernel_function

ZERO, ONE = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1)


def sizes_kernel(symbol: str, count: int) -> tirx.PrimFunc:
    """Return `symbol(out, int64_t sizes..., begin, end)`, which writes the sizes."""
    with kernel_function(symbol, {"out": "int64"}, [f"s{i}" for i in range(count)]) as made:
        (out,), (*values, begin, end) = made.memory.values(), made.sizes.values()
        with T.serial(begin, end):
            for position, value in enumerate(values):
                T.buffer_store(out, value, [tirx.IntImm("int64", position)])
    return made.function


def copy_numbers_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(out, values, begin, end)`, which copies int64."""
    with kernel_function(symbol, {"out": "int64", "values": "int64"}, (), unaligned=("values",)) as made:
        out, values = made.memory.values()
        with T.serial(*made.sizes.values()) as i:
            T.buffer_store(out, values[i], [i])
    return made.function


def flag_kernel(symbol: str, always: bool, when: bool) -> tirx.PrimFunc:
    """Return `symbol(flag, condition, begin, end)`, or without a condition; flag gets whether it has a value."""
    pointers = {"flag": "int32"} if always else {"flag": "int32", "condition": "uint8"}
    with kernel_function(symbol, pointers, ()) as made:
        flag, *condition = made.memory.values()
        with T.serial(*made.sizes.values()):
            holds = tirx.IntImm("int32", 1)
            if condition:
                is_set = condition[0][ZERO] != tirx.IntImm("uint8", 0)
                holds = tirx.Cast("int32", is_set if when else tirx.Not(is_set))
            T.buffer_store(flag, holds, [ZERO])
    return made.function


def count_kernel(symbol: str, factor: int, more: int) -> tirx.PrimFunc:
    """Return `symbol(out, number, begin, end)`: out gets a multiple of the number, and something more."""
    with kernel_function(symbol, {"out": "int64", "number": "int64"}, ()) as made:
        out, number = made.memory.values()
        with T.serial(*made.sizes.values()):
            T.buffer_store(out, number[ZERO] * tirx.IntImm("int64", factor) + tirx.IntImm("int64", more), [ZERO])
    return made.function


def test_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(flag, number, limit, going, begin, end)`: flag gets whether no round follows."""
    pointers = {"flag": "int32", "number": "int64", "limit": "int64", "going": "uint8"}
    with kernel_function(symbol, pointers, (), unaligned=("limit",)) as made:
        flag, number, limit, going = made.memory.values()
        with T.serial(*made.sizes.values()):
            ends = tirx.Or(number[ZERO] >= limit[ZERO], going[ZERO] == tirx.IntImm("uint8", 0))
            T.buffer_store(flag, tirx.Cast("int32", ends), [ZERO])
    return made.function


def part_kernel(symbol: str, backwards: bool, into: bool) -> tirx.PrimFunc:
    """Return `symbol(source, out, number, limit, bytes, begin, end)`, which copies the part of a round's number.

    A work item is a byte of the part, which lies in `out` if `into`, else in `source`.
    """
    pointers = {"source": "uint8", "out": "uint8", "number": "int64", "limit": "int64"}
    with kernel_function(symbol, pointers, ("bytes",), unaligned=("limit",)) as made:
        (source, out, number, limit), (size, begin, end) = made.memory.values(), made.sizes.values()
        with T.serial(begin, end) as i:
            at = limit[ZERO] - ONE - number[ZERO] if backwards else number[ZERO]
            where = at * size + i
            T.buffer_store(out, source[i if into else where], [where if into else i])
    return made.function
