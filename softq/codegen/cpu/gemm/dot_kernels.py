"""Products of a block of rows of 8-bit or 16-bit integers and a panel of columns, summed as int32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.block import row_counts, tile_of_block
from softq.codegen.cpu.gemm.dot_product import Dot, product_of
from softq.codegen.cpu.gemm.tiles import Matrix, Tile, broadcast, number, vector
from softq.compiler.tir.kernel_function import kernel_function


def sum_kernel(machine: Cpu, dot: Dot) -> tirx.PrimFunc:
    """Return the kernel of a block of integers.

        void symbol(const L *a, const R *panel, const int32_t *columns, const int32_t *rows, int32_t *c, int64_t a_row,
                    int64_t c_row, int64_t groups, int64_t width, int64_t factor, int64_t first, int64_t begin,
                    int64_t end)

    It computes the rows of c from `begin` up to `end`, `width` columns of each: a [rows, groups, count] times a panel
    [groups, columns, count], added to `first` + rows[row] + `factor` * columns[column]. Rows are `a_row` and `c_row`
    elements apart.
    """

    def prepare(block: Block) -> Callable[[Any, Any], Any]:
        starts, lanes = T.alloc_buffer((block.tile.columns,), "int32", scope="local"), block.tile.lanes
        factor, first = (block.size[name].astype("int32") for name in ("factor", "first"))
        for v in range(block.tile.vectors):
            at = block.column(v)
            value = block.memory["columns"][at] * broadcast(factor, lanes) + broadcast(first, lanes)
            T.buffer_store(starts, value, [at])
        return lambda row, at: starts[at] + broadcast(block.memory["rows"][row], lanes)

    pointers = {"columns": "int32", "rows": "int32", "c": "int32"}
    return dot_block_kernel(machine, dot, f"{dot.symbol}_sums", pointers, ("factor", "first"), prepare)


@dataclass(frozen=True)
class Block:
    """The parameters of a kernel while it is written.

    Attributes:
        tile: What is held in registers.
        memory: What pointers point to, by name.
        size: Numbers by name.
    """

    tile: Tile
    memory: Mapping[str, Any]
    size: Mapping[str, Any]

    def column(self, v: int) -> Any:
        """Return the positions of a vector's columns."""
        return vector(number(v * self.tile.lanes), self.tile.lanes)

    def store(self, out: Matrix, value: Any, row: Any, column: Any, lanes: int) -> None:
        """Write sums as they are."""
        out.store(value, row, column, lanes)


def dot_block_kernel(
    machine: Cpu,
    dot: Dot,
    symbol: str,
    pointers: Mapping[str, str],
    sizes: Sequence[str],
    prepare: Callable[[Block], Callable[[Any, Any], Any]],
    store: Callable[[Block, Matrix, Any, Any, Any, int], None] = Block.store,
) -> tirx.PrimFunc:
    """Return the kernel of a block: `symbol(a, panel, pointers..., a_row, c_row, groups, width, sizes..., begin, end)`.

    Args:
        machine: The processor.
        dot: How integers are multiplied.
        symbol: The kernel's name.
        pointers: Types of further pointers; `c` is the result.
        sizes: Further numbers.
        prepare: Is called once; returns what products are added to, for a row and a vector's columns.
        store: Writes sums to a row and a column of the result, as many as it has lanes.
    """
    tile = tile_of_block(machine)
    lanes, zero = tile.lanes, number(0)
    types = {"a": dot.left, "panel": dot.right, **pointers}
    with kernel_function(symbol, types, ("a_row", "c_row", "groups", "width", *sizes)) as made:
        a_row, c_row, groups, width, *_, begin, end = made.sizes.values()
        block, product = Block(tile, made.memory, made.sizes), product_of(machine, dot, made.memory)
        done = T.alloc_buffer((1,), "int64", scope="local")
        sums = T.alloc_buffer((tile.rows * tile.columns,), "int32", scope="local")

        def at(row: int, v: int) -> Any:
            return vector(number((row * tile.vectors + v) * lanes), lanes)

        def strips(rows: int, vectors: int) -> None:
            places = [(row, v) for row in range(rows) for v in range(vectors)]
            with T.serial(zero, tirx.truncdiv(end - done[zero], number(rows))):
                first = done[zero]
                for row, v in places:
                    T.buffer_store(sums, start(first + number(row), block.column(v)), [at(row, v)])
                with T.serial(zero, groups) as group:
                    for row, v in places:
                        left = (first + number(row)) * a_row + group * number(dot.count)
                        right = (group * number(tile.columns) + number(v * lanes)) * number(dot.count)
                        T.buffer_store(sums, product(sums[at(row, v)], left, right), [at(row, v)])
                out = Matrix(made.memory["c"], first * c_row, c_row)
                edge = Matrix(T.alloc_buffer((rows * lanes,), "int32", scope="local"), zero, number(lanes))
                for row, v in places:
                    if v < vectors - 1:
                        store(block, out, sums[at(row, v)], number(row), number(v * lanes), lanes)
                    else:
                        edge.store(sums[at(row, v)], number(row), zero, lanes)
                skipped = number((vectors - 1) * lanes)
                with T.serial(zero, number(rows)) as row, T.If(number(vectors * lanes) <= width):
                    with T.Then():
                        store(block, out, edge.load(row, zero, lanes), row, skipped, lanes)
                    with T.Else(), T.serial(zero, width - skipped) as column:
                        store(block, out, edge.load(row, column), row, skipped + column, 1)
                T.buffer_store(done, first + number(rows), [zero])

        start = prepare(block)
        for v in range(1, tile.vectors + 1):
            least, most = number((v - 1) * lanes), number(v * lanes)
            with T.If(tirx.And(least < width, width <= most)), T.Then():
                T.buffer_store(done, begin, [zero])
                for rows in row_counts(tile.rows):
                    strips(rows, v)
    return made.function
