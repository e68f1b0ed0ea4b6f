# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""Products of blocks of short integers: several products are added up in each 32 bits of an instruction.

x86's VNNI multiplies four unsigned bytes by four signed ones, or two signed 16-bit numbers by two, and adds them to an
int32; elsewhere the same sums are made by 32-bit arithmetic. They are integers, so that both give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.targets._native.attention.blocks import row_counts, tile_of_block
from softq.targets._native.machine import Machine
from softq.targets._native.rows.tir import cast, intrinsic, reinterpret
from softq.targets._native.tiles import Matrix, broadcast, number, vector


@dataclass(frozen=True)
class Dot:
    """One kind of product.

    Attributes:
        symbol: Name of the kernel.
        count: How many numbers are in 32 bits.
        left: Type of the rows' numbers.
        right: Type of the columns' numbers.
        instruction: LLVM's name of x86's instruction for 64 bytes.
    """

    symbol: str
    count: int
    left: str
    right: str
    instruction: str


BYTES = Dot("softq_dot_bytes", 4, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.512")
WORDS = Dot("softq_dot_words", 2, "int16", "int16", "llvm.x86.avx512.vpdpwssd.512")


def dot_kernel(machine: Machine, dot: Dot) -> tirx.PrimFunc:
    """Return the kernel of a block.

        void symbol(const L *a, const R *panel, const int32_t *starts, const float *scale, float *c, int64_t a_row,
                    int64_t c_row, int64_t groups, int64_t width, int64_t more, int64_t begin, int64_t end)

    It computes the rows of c from `begin` up to `end`, `width` columns of each: a [rows, groups, count] times a panel
    [groups, columns, count], added up from `starts` [columns], as float32 times `scale`, added to what is there if
    `more` is not 0. Rows are `a_row` and `c_row` elements apart.
    """
    tile = tile_of_block(machine)
    lanes, count, zero = tile.lanes, dot.count, number(0)
    instruction = "avx512vnni" in machine.requires and lanes == 16
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(dot.symbol)
        types = {"a": dot.left, "panel": dot.right, "starts": "int32", "scale": "float32", "c": "float32"}
        pointers = {name: T.arg(name, T.handle(dtype)) for name, dtype in types.items()}
        names = ("a_row", "c_row", "groups", "width", "more", "begin", "end")
        a_row, c_row, groups, width, more, begin, end = (T.arg(name, T.int64()) for name in names)
        T.func_attr({"global_symbol": dot.symbol, "tirx.noalias": True})
        a, panel, starts, scale, c = (
            T.decl_buffer(
                (end * a_row,), dtype, data=pointers[name], align={"int8": 1, "uint8": 1, "int16": 2}.get(dtype, 4)
            )
            for name, dtype in types.items()
        )
        done = T.alloc_buffer((1,), "int64", scope="local")
        sums = T.alloc_buffer((tile.rows * tile.columns,), "int32", scope="local")

        def at(row: int, v: int) -> Any:
            return vector(number((row * tile.vectors + v) * lanes), lanes)

        def product(held: Any, left: Any, right: Any) -> Any:
            if instruction:
                four = reinterpret(a[vector(left, count)], "int32", 1)
                spread = reinterpret(broadcast(four, lanes), dot.left, lanes * count)
                return intrinsic(dot.instruction, "int32", lanes, held, spread, panel[vector(right, lanes * count)])
            for i in range(count):
                one = broadcast(cast(a[left + number(i)], dot.left, "int32", 1), lanes)
                first = right + number(i)
                others = panel[first if lanes == 1 else tirx.Ramp(first, number(count), lanes)]
                held = held + one * cast(others, dot.right, "int32", lanes)
            return held

        def strips(rows: int, vectors: int) -> None:
            places = [(row, v) for row in range(rows) for v in range(vectors)]
            with T.serial(zero, tirx.truncdiv(end - done[zero], number(rows))):
                first = done[zero]
                for row, v in places:
                    T.buffer_store(sums, starts[vector(number(v * lanes), lanes)], [at(row, v)])
                with T.serial(zero, groups) as group:
                    for row, v in places:
                        left = (first + number(row)) * a_row + group * number(count)
                        right = (group * number(tile.columns) + number(v * lanes)) * number(count)
                        T.buffer_store(sums, product(sums[at(row, v)], left, right), [at(row, v)])
                out = Matrix(c, first * c_row, c_row)
                edge = Matrix(T.alloc_buffer((rows * lanes,), "float32", scope="local"), zero, number(lanes))
                for row, v in places:
                    value = cast(sums[at(row, v)], "int32", "float32", lanes) * broadcast(scale[zero], lanes)
                    if v < vectors - 1:
                        add(out, value, number(row), number(v * lanes), lanes)
                    else:
                        edge.store(value, number(row), zero, lanes)
                skipped = number((vectors - 1) * lanes)
                with T.serial(zero, number(rows)) as row, T.If(number(vectors * lanes) <= width):
                    with T.Then():
                        add(out, edge.load(row, zero, lanes), row, skipped, lanes)
                    with T.Else(), T.serial(zero, width - skipped) as column:
                        add(out, edge.load(row, column), row, skipped + column, 1)
                T.buffer_store(done, first + number(rows), [zero])

        def add(out: Matrix, value: Any, row: Any, column: Any, size: int) -> None:
            with T.If(more != zero):
                with T.Then():
                    out.store(out.load(row, column, size) + value, row, column, size)
                with T.Else():
                    out.store(value, row, column, size)

        for v in range(1, tile.vectors + 1):
            least, most = number((v - 1) * lanes), number(v * lanes)
            with T.If(tirx.And(least < width, width <= most)), T.Then():
                T.buffer_store(done, begin, [zero])
                for rows in row_counts(tile.rows):
                    strips(rows, v)
    return builder.get()


def pack_dots_kernel(machine: Machine, dot: Dot, symbol: str, *, transposed: bool, offset: int) -> tirx.PrimFunc:
    """Return the kernel that packs matrices of bytes for `dot_kernel`.

        void symbol(const int8_t *b, R *panels, int32_t *starts, int64_t k, int64_t n, int64_t begin, int64_t end)

    A work item is one panel of one matrix. A matrix is [k, n] (`transposed`: [n, k]); panels are [matrices, panels,
    groups, columns, count] with zeros behind the end, starts [matrices, panels, columns]: `-offset` times the sum of
    each column, which is what an offset of the other operand's numbers adds to a product.
    """
    tile, zero = tile_of_block(machine), number(0)
    columns, count = number(tile.columns), number(dot.count)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        types = {"b": "int8", "panels": dot.right, "starts": "int32"}
        pointers = {name: T.arg(name, T.handle(dtype)) for name, dtype in types.items()}
        k, n, begin, end = (T.arg(name, T.int64()) for name in ("k", "n", "begin", "end"))
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        b, out, starts = (
            T.decl_buffer((end * n * k,), dtype, data=pointers[name], align=4 if dtype == "int32" else 1)
            for name, dtype in types.items()
        )
        total = T.alloc_buffer((1,), "int32", scope="local")
        panels = tirx.truncdiv(n + columns - number(1), columns)
        groups, whole = tirx.truncdiv(k + count - number(1), count), tirx.truncdiv(k, count)

        def source(matrix: Any, position: Any, step: Any) -> Any:
            return b[(matrix * n + position) * k + step if transposed else (matrix * k + step) * n + position]

        def copied(item: Any, matrix: Any, column: Any, position: Any, group: Any) -> None:
            to = ((item * groups + group) * columns + column) * count
            for i in range(dot.count):
                value = source(matrix, position, group * count + number(i))
                T.buffer_store(out, cast(value, "int8", dot.right, 1), [to + number(i)])

        with T.serial(begin, end) as item:
            matrix, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * columns
            width = tirx.min(columns, n - first)
            # Where all numbers of a group exist, in the order in which they are read from memory.
            if transposed:
                with T.serial(zero, width) as column, T.serial(zero, whole) as group:
                    copied(item, matrix, column, first + column, group)
            else:
                with T.serial(zero, whole) as group, T.serial(zero, width) as column:
                    copied(item, matrix, column, first + column, group)
            with T.serial(zero, columns) as column:
                position = first + column
                last = tirx.Select(position < n, whole, zero)
                with T.serial(last * count, groups * count) as step:
                    group = tirx.truncdiv(step, count)
                    to = ((item * groups + group) * columns + column) * count + tirx.truncmod(step, count)
                    with T.If(tirx.And(position < n, step < k)):
                        with T.Then():
                            T.buffer_store(out, cast(source(matrix, position, step), "int8", dot.right, 1), [to])
                        with T.Else():
                            T.buffer_store(out, tirx.IntImm(dot.right, 0), [to])
                T.buffer_store(total, tirx.IntImm("int32", 0), [zero])
                if offset:
                    with T.If(position < n), T.Then(), T.serial(zero, k) as step:
                        value = cast(source(matrix, position, step), "int8", "int32", 1)
                        T.buffer_store(total, total[zero] + value, [zero])
                T.buffer_store(starts, total[zero] * tirx.IntImm("int32", -offset), [item * columns + column])
    return builder.get()
