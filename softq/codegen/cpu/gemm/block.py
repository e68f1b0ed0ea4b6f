"""The product of a block of rows and a few columns: what fused kernels call again and again.

Rows and columns that fill no whole tile go through smaller ones, so that a block of 197 columns costs little more than
its share. The sums are the same to the bit, whatever the tile (`tiles`).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.tiles import Matrix, Sums, Tile, ceil_divide, number
from softq.compiler.tir.kernel_function import kernel_function

BLOCK = "softq_block"
"""Symbol."""


def rows_of(item: Any, rows: Any, block: Any) -> tuple[Any, Any, Any, Any]:
    """Return what a work item is, where every matrix has so many rows, in blocks.

    Args:
        item: Its number, over matrices and their blocks.
        rows: Rows of a matrix.
        block: Rows of a block; the last one of a matrix may have fewer.

    Returns:
        The number of the matrix, the block's first row in it and in all matrices together, and how many rows it has.
    """
    blocks = ceil_divide(rows, block)
    matrix, inside = tirx.truncdiv(item, blocks), tirx.truncmod(item, blocks) * block
    return matrix, inside, matrix * rows + inside, tirx.min(block, rows - inside)


def tile_of_block(machine: Cpu) -> Tile:
    """Return the largest tile: its columns are those of a panel.

    Six rows, because their addresses fit the general registers: of eight some are reloaded in every step.
    """
    if not machine.vector_bytes:
        return Tile(4, 4, 1)
    return Tile(6, 4 if machine.vectors >= 32 else 2, machine.lanes(32))


def block_kernel(machine: Cpu) -> tirx.PrimFunc:
    """Return the kernel of a block.

        void softq_block(const float *a, const float *b, float *c, int64_t a_row, int64_t b_row, int64_t c_row,
                         int64_t steps, int64_t width, int64_t more, int64_t begin, int64_t end)

    It computes the rows of c from `begin` up to `end`, `width` columns of each, at most those of the tile: the product
    of a [rows, steps] and b [steps, width], added to what is there if `more` is not 0. Rows are so many elements apart.
    b must be readable up to a whole vector of columns.
    """
    tile = tile_of_block(machine)
    names = ("a_row", "b_row", "c_row", "steps", "width", "more")
    with kernel_function(BLOCK, dict.fromkeys("abc", "float32"), names) as made:
        a, b, c = made.memory.values()
        a_row, b_row, c_row, steps, width, more, begin, end = made.sizes.values()
        done = T.alloc_buffer((1,), "int64", scope="local")
        zero, sums = number(0), Sums(tile)

        def strips(rows: int, v: int) -> None:
            count = tirx.truncdiv(end - done[zero], number(rows))
            with T.serial(zero, count):
                first = done[zero]
                out = Matrix(c, first * c_row, c_row)
                with T.If(more != zero):
                    with T.Then():
                        sums.load(rows, out, width, v)
                    with T.Else():
                        sums.clear(rows, v)
                sums.add_products(rows, Matrix(a, first * a_row, a_row), Matrix(b, zero, b_row), steps, v)
                sums.store(rows, out, width, v)
                T.buffer_store(done, first + number(rows), [zero])

        for v in range(1, tile.vectors + 1):
            least, most = number((v - 1) * tile.lanes), number(v * tile.lanes)
            with T.If(tirx.And(least < width, width <= most)), T.Then():
                T.buffer_store(done, begin, [zero])
                for rows in row_counts(tile.rows):
                    strips(rows, v)
    return made.function


def row_counts(rows: int) -> list[int]:
    """Return the heights of the tiles that are used one after another, until no row is left.

    A single row has too few sums at once to keep the processor busy, so that it should be the last one only.
    """
    return [rows, *(height for height in (4, 2, 1) if height < rows)]
