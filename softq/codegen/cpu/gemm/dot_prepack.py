"""The operands of products of short integers in the form that they are multiplied in, with their sums."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.dot_product import OFFSET, Dot, product_of
from softq.codegen.cpu.gemm.tiles import ceil_divide, matrix_start, number, tile_of_block, vector
from softq.codegen.cpu.rows.tir import broadcast, cast, const, reinterpret, shuffle
from softq.compiler.tir.kernel_function import kernel_function


def pack_dots_kernel(
    machine: Cpu,
    dot: Dot,
    symbol: str,
    *,
    transposed: bool,
    given: str = "int8",
    factor: int = 1,
    zero_point: int | None = None,
) -> tirx.PrimFunc:
    """Return the kernel that packs matrices of bytes for `dot_kernel` and `sum_kernel`.

        void symbol(const G *b, R *panels, int32_t *sums, int64_t k, int64_t n, int64_t heads, int64_t row,
                    int64_t outer, int64_t inner, int64_t begin, int64_t end)

    A work item is one panel of one matrix. A matrix is [k, n] (`transposed`: [n, k]), its rows `row` elements apart;
    number i starts at i // heads times `outer` and i % heads times `inner`. Panels are [matrices, panels, groups,
    columns, count] with zeros behind the end, sums [matrices, panels, columns]: `factor` times the sum of each column.

    Args:
        machine: The processor.
        dot: What the panels are for.
        symbol: The kernel's name.
        transposed: Whether a column of the panels is a row of the matrix.
        given: Type of the matrix; `Dot.right_offset` is added.
        factor: See above.
        zero_point: What is taken off instead of adding the offset, if words are packed.
    """
    tile, zero = tile_of_block(machine), number(0)
    columns, count = number(tile.columns), number(dot.count)
    types = {"b": given, "panels": dot.right, "sums": "int32"}
    with kernel_function(symbol, types, ("k", "n", "heads", "row", "outer", "inner")) as made:
        b, out, sums = made.memory.values()
        k, n, heads, row, outer, inner, begin, end = made.sizes.values()
        base = T.alloc_buffer((1,), "int64", scope="local")
        panels, groups, whole = ceil_divide(n, columns), ceil_divide(k, count), tirx.truncdiv(k, count)
        lanes = tile.lanes

        def elements(position: Any, step: Any, many: int) -> Any:
            """Return some columns of a row, one after another in memory unless `transposed`."""
            at = base[zero] + (position * row + step if transposed else step * row + position)
            if zero_point is None:
                return of_right(dot, given, b[vector(at, many)], many)
            return cast(b[vector(at, many)], given, dot.right, many) - const(zero_point, dot.right, many)

        def store(item: Any, group: Any, column: Any, inside: Any, value: Any, many: int = 1) -> None:
            to = ((item * groups + group) * columns + column) * count + inside
            T.buffer_store(out, value, [vector(to, many)])

        def copy(item: Any, first: Any, column: Any, group: Any) -> None:
            for i in range(dot.count):
                store(item, group, column, number(i), elements(first + column, group * count + number(i), 1))

        def interleave(item: Any, first: Any, group: Any, v: int) -> None:
            start = number(v * lanes)
            rows = [elements(first + start, group * count + number(i), lanes) for i in range(dot.count)]
            order = [i * lanes + column for column in range(lanes) for i in range(dot.count)]
            store(item, group, start, zero, shuffle(rows, order), lanes * dot.count)

        with T.serial(begin, end) as item:
            matrix, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * columns
            T.buffer_store(base, matrix_start(matrix, heads, outer, inner), [zero])
            width = tirx.min(columns, n - first)
            with T.If(tirx.Or(width < columns, whole < groups)), T.Then(), T.serial(zero, groups) as group:
                for v in range(tile.vectors):
                    nothing = broadcast(tirx.IntImm(dot.right, 0), lanes * dot.count)
                    store(item, group, number(v * lanes), zero, nothing, lanes * dot.count)
            # In the order in which they are read from memory.
            if transposed:
                with T.serial(zero, width) as column, T.serial(zero, whole) as group:
                    copy(item, first, column, group)
            else:
                with T.serial(zero, whole) as group:
                    for v in range(tile.vectors if lanes > 1 else 0):
                        with T.If(number((v + 1) * lanes) <= width), T.Then():
                            interleave(item, first, group, v)
                    done = tirx.truncdiv(width, number(lanes)) * number(lanes) if lanes > 1 else zero
                    with T.serial(done, width) as column:
                        copy(item, first, column, group)
            with T.serial(whole * count, k) as step, T.serial(zero, width) as column:
                store(item, whole, column, step - whole * count, elements(first + column, step, 1))
            for v in range(tile.vectors):
                add_up_columns(
                    machine, dot, out, sums, (item * columns + number(v * lanes), item * groups, groups, v, factor)
                )
    return made.function


def of_right(dot: Dot, given: str, value: Any, lanes: int) -> Any:
    """Return bytes of a type as the right operand holds them."""
    if dot.right_offset(given):
        value = reinterpret(value ^ broadcast(tirx.IntImm("uint8", OFFSET), lanes), "int8", lanes)
    return cast(value, "int8", dot.right, lanes)


def add_up_columns(machine: Cpu, dot: Dot, panel: Any, sums: Any, where: tuple[Any, Any, Any, int, int]) -> None:
    """Emit `factor` times the sums of a vector's columns of a panel: each group's product with ones.

    Args:
        machine: The processor.
        dot: What the panel is for.
        out: The buffer of the panel.
        sums: That of the sums.
        where: Where the sums go, the panel's first group, how many groups it has, the vector's number, and the factor.
    """
    to, first, groups, v, factor = where
    tile, zero = tile_of_block(machine), number(0)
    lanes = tile.lanes
    total = T.alloc_buffer((lanes,), "int32", scope="local")
    ones = T.alloc_buffer((dot.count,), dot.left, scope="local")
    for i in range(dot.count):
        T.buffer_store(ones, tirx.IntImm(dot.left, 1), [number(i)])
    T.buffer_store(total, broadcast(tirx.IntImm("int32", 0), lanes), [vector(zero, lanes)])
    product = product_of(machine, dot, {"a": ones, "panel": panel})
    if factor:
        with T.serial(zero, groups) as group:
            at = ((first + group) * number(tile.columns) + number(v * lanes)) * number(dot.count)
            T.buffer_store(total, product(total[vector(zero, lanes)], zero, at), [vector(zero, lanes)])
    value = total[vector(zero, lanes)] * broadcast(tirx.IntImm("int32", factor), lanes)
    T.buffer_store(sums, value, [vector(to, lanes)])


def rows_kernel(dot: Dot, given: str) -> tirx.PrimFunc:
    """Return the kernel that gives rows of bytes the type of a product's left operand.

        void symbol(const G *source, L *out, int32_t *sums, int64_t source_row, int64_t out_row, int64_t width,
                    int64_t factor, int64_t begin, int64_t end)

    `Dot.left_offset` is added. `sums` has `factor` times the sum of each row. Rows are so many elements apart.
    """
    zero = number(0)
    types = {"source": given, "out": dot.left, "sums": "int32"}
    with kernel_function(rows_symbol(dot, given), types, ("source_row", "out_row", "width", "factor")) as made:
        source, out, sums = made.memory.values()
        source_row, out_row, width, factor, begin, end = made.sizes.values()
        total = T.alloc_buffer((1,), "int32", scope="local")

        taken = "int8" if dot.left == "int8" else "uint8"

        def byte(row: Any, k: Any) -> Any:
            value = source[row * source_row + k]
            if not dot.left_offset(given):
                return value
            return reinterpret(reinterpret(value, "uint8", 1) ^ tirx.IntImm("uint8", OFFSET), taken, 1)

        with T.serial(begin, end) as row:
            T.buffer_store(total, tirx.IntImm("int32", 0), [zero])
            with T.serial(zero, width) as k:
                T.buffer_store(out, cast(byte(row, k), taken, dot.left, 1), [row * out_row + k])
            with T.If(factor != zero), T.Then(), T.serial(zero, width) as k:
                T.buffer_store(total, total[zero] + cast(byte(row, k), taken, "int32", 1), [zero])
            T.buffer_store(sums, total[zero] * factor.astype("int32"), [row])
    return made.function


def rows_symbol(dot: Dot, given: str) -> str:
    """Return the name of `rows_kernel`."""
    return f"{dot.symbol}_rows_{given}"
