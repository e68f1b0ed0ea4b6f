"""Products of float32 matrices: register-tiled kernels over packed panels and of a block, and the kernels that pack.

The right operand is packed into panels of NR columns, [panels, K, NR], zeros where the last panel is not full; a
constant one when the model is built, another before each product. The kernel holds a tile of MR rows x NR columns in
registers (`tiles`) and goes along K once, which reads MR + NR numbers for MR x NR multiply-adds. Where K is known and
great, it goes along parts of K and adds their sums: the result is nearer to the exact one.

Source of the form: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008;
the tile sizes were measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.scaled_sums import ScaledSums
from softq.codegen.cpu.gemm.tiles import Matrix, Sums, Tile, block_tiles, ceil_divide, matrix_start, number, vectors_of
from softq.compiler.steps.product import Epilogue
from softq.compiler.tir.kernel_function import kernel_function

ROWS = 64
"""Rows of the left operand in one work item: few enough to spread over threads, enough to use a panel several times."""

LONG, PART = 4096, 512
"""Above so many terms a sum is made of parts. The error of a chain of float32 additions grows with the root of its
length, if not with its length: 1e-6 of the greatest sum was seen for 45,411 terms, and 1.6e-7 in parts of 512."""

MATMUL, BLOCK, PACK, PACK_BLOCK = "softq_matmul", "softq_block", "softq_pack", "softq_block_pack"
"""Symbols; those of kernels that pack transposed matrices have `_transposed` behind them."""


def pack_weight(array: NDArray[np.float32], tile: Tile, transposed: bool) -> NDArray[np.float32]:
    """Return a matrix [K, N] (`transposed`: [N, K]) as panels [panels, K, columns]."""
    matrix = array.T if transposed else array
    inner, columns = matrix.shape
    panels = -(-columns // tile.columns)
    result = np.zeros((panels, inner, tile.columns), np.float32)
    for panel in range(panels):
        part = matrix[:, panel * tile.columns : (panel + 1) * tile.columns]
        result[panel, :, : part.shape[1]] = part
    return result


def is_long(inner: object) -> bool:
    """Say whether sums of so many terms are made of parts; not if the number is known at run time only."""
    return isinstance(inner, int) and inner > LONG


def matmul_kernel(
    tile: Tile, symbol: str = MATMUL, epilogue: Epilogue | None = None, *, parts: bool = False
) -> tirx.PrimFunc:
    """Return `softq_matmul(a, panels, c, m, k, n, step, begin, end)` for `batch` products, a matrix of panels for each.

    Each product takes the rows of `a` that lie `step` behind those of the one before: m, or 0 where all take the same.
    Work items are numbered over batch, panels, and blocks of `ROWS` rows.

    Args:
        tile: What is held in registers.
        symbol: The kernel's name.
        epilogue: What is done to each element; what it reads stands behind `c`.
        parts: Whether a sum is made of the sums of `PART` terms.
    """
    columns = tile.columns
    operands = () if epilogue is None else epilogue.operands
    read = {f"operand{i}": operand.dtype for i, operand in enumerate(operands)}
    with kernel_function(symbol, dict.fromkeys("abc", "float32") | read, ("m", "k", "n", "step"), tuple(read)) as made:
        a, b, c, *others = made.memory.values()
        m, k, n, ahead, begin, end = made.sizes.values()
        sums = Sums(tile)
        totals = Sums(tile) if parts else sums
        # Positions are kept in memory: as expressions they would be copied into each other, and simplified together.
        kept = T.alloc_buffer((6,), "int64", scope="local")
        panels, blocks = ceil_divide(n, columns), ceil_divide(m, ROWS)

        with T.serial(begin, end) as item:
            # All are positive, and truncation needs no correction for negative ones.
            batch, within = tirx.truncdiv(item, panels * blocks), tirx.truncmod(item, panels * blocks)
            # Blocks first: a panel is used for all rows while it is in the cache.
            panel, block = tirx.truncdiv(within, blocks), tirx.truncmod(within, blocks)
            top, first = block * number(ROWS), panel * number(columns)
            position = [(batch * panels + panel) * k * number(columns), first, tirx.min(number(columns), n - first)]
            starts = [batch * m + top, batch * ahead + top, (batch * m + top) * n + first]
            for i, value in enumerate([*position, *starts]):
                T.buffer_store(kept, value, [number(i)])
            rows = tirx.min(number(ROWS), m - top)

            def strip(size: int) -> None:
                right, first, width, row, left = (kept[number(i)] for i in range(5))
                # The last panel may need fewer vectors than the others.
                for vectors in vectors_of(tile, width):
                    totals.clear(size, vectors)
                    matrices = Matrix(a, left * k, k), Matrix(b, right, number(columns))
                    if parts:
                        _add_in_parts(totals, sums, size, matrices, k, vectors)
                    else:
                        sums.add_products(size, *matrices, k, vectors)
                    totals.store(size, Matrix(c, row * n + first, n), width, vectors)
                for i in (3, 4):
                    T.buffer_store(kept, kept[number(i)] + number(size), [number(i)])

            with T.serial(number(0), tirx.truncdiv(rows, number(tile.rows))):
                strip(tile.rows)
            left, size = tirx.truncmod(rows, number(tile.rows)), 1 << (tile.rows - 1).bit_length() - 1
            while size:  # what is left, in halves
                with T.If((left & number(size)) != number(0)), T.Then():
                    strip(size)
                size //= 2
            if epilogue is not None:
                _finish(tile, epilogue, c, others, (rows, kept[number(2)], kept[number(5)], kept[number(1)]), n)
    return made.function


def _add_in_parts(totals: Sums, sums: Sums, rows: int, given: tuple[Matrix, Matrix], steps: Any, vectors: int) -> None:
    a, b = given
    with T.serial(number(0), ceil_divide(steps, PART)) as part:
        begin = part * number(PART)
        sums.clear(rows, vectors)
        left, right = (
            Matrix(a.buffer, a.start + begin, a.stride),
            Matrix(b.buffer, b.start + begin * b.stride, b.stride),
        )
        sums.add_products(rows, left, right, tirx.min(number(PART), steps - begin), vectors)
        totals.add(sums, rows, vectors)


def _finish(tile: Tile, epilogue: Epilogue, c: Any, others: list[Any], block: tuple[Any, ...], stride: Any) -> None:
    """Emit the epilogue of a block: `rows` rows of `width` columns, from a place of `c` and a column on."""
    rows, width, start, first = block

    def apply(at: Any, column: Any) -> None:
        places = {"same": at, "column": first + column, "one": number(0)}
        T.buffer_store(c, epilogue.apply(c[at], lambda i, operand: others[i][places[operand.where]]), [at])

    parts = tirx.truncdiv(width, number(tile.lanes)) if tile.lanes > 1 else number(0)
    with T.serial(number(0), rows) as row:
        if tile.lanes > 1:
            with T.serial(number(0), parts) as part, T.vectorized(number(0), number(tile.lanes)) as lane:
                column = part * number(tile.lanes) + lane
                apply(start + row * stride + column, column)
        with T.serial(parts * number(tile.lanes), width) as column:
            apply(start + row * stride + column, column)


def block_kernel(tile: Tile, symbol: str = BLOCK, scaled: ScaledSums | None = None) -> tirx.PrimFunc:
    """Return the kernel of a block of rows and a few columns, which fused kernels call again and again.

        void symbol(const float *a, const float *b, float *c, [const float *operand...,] int64_t a_row, int64_t b_row,
                    int64_t c_row, int64_t steps, int64_t width, int64_t more, int64_t begin, int64_t end)

    It computes the rows of c from `begin` up to `end`, `width` columns of each, at most those of the tile: the product
    of a [rows, steps] and b [steps, width], added to what is there if `more` is not 0. Rows are so many elements apart.
    b must be readable up to a whole vector of columns.

    Rows and columns that fill no whole tile go through smaller ones, so that a block of 197 columns costs little more
    than its share. The sums are the same to the bit, whatever the tile (`tiles`).

    Args:
        tile: The largest tile.
        symbol: The kernel's name.
        scaled: What is done to sums before they are written; they cannot be added to, then.
    """
    names = ("a_row", "b_row", "c_row", "steps", "width", "more")
    read = [] if scaled is None else [f"operand{i}" for i in range(scaled.operands)]
    with kernel_function(symbol, dict.fromkeys((*"abc", *read), "float32"), names) as made:
        a, b, c, *others = made.memory.values()
        a_row, b_row, c_row, steps, width, more, begin, end = made.sizes.values()
        done = T.alloc_buffer((1,), "int64", scope="local")
        zero, sums = number(0), Sums(tile)

        for rows, v, first in block_tiles(tile, width, begin, end, done):
            out = Matrix(c, first * c_row, c_row)
            with T.If(more != zero):
                with T.Then():
                    sums.load(rows, out, width, v)
                with T.Else():
                    sums.clear(rows, v)
            sums.add_products(rows, Matrix(a, first * a_row, a_row), Matrix(b, zero, b_row), steps, v)
            for place in [(row, i) for row in range(rows) for i in range(v)] if scaled is not None else []:
                sums.set(*place, scaled.apply(sums.get(*place), [other[zero] for other in others], tile.lanes))
            sums.store(rows, out, width, v)
    return made.function


def pack_kernel(tile: Tile, symbol: str, *, transposed: bool, strided: bool) -> tirx.PrimFunc:
    """Return the kernel that packs matrices into panels [matrices, panels, k, columns], with zeros behind the end.

        void symbol(const float *b, float *panels, int64_t k, int64_t n,
                    [int64_t heads, int64_t row, int64_t outer, int64_t inner,] int64_t begin, int64_t end)

    A work item is one panel of one matrix. A matrix has k rows of n elements (`transposed`: n rows of k). If `strided`,
    rows are `row` elements apart, and matrix i starts at i // heads times `outer` and i % heads times `inner`; else
    everything lies one behind another.
    """
    columns, zero = number(tile.columns), number(0)
    strides = ("heads", "row", "outer", "inner") if strided else ()
    with kernel_function(symbol, {"b": "float32", "panels": "float32"}, ("k", "n", *strides)) as made:
        (b, out), (k, n, *given, begin, end) = made.memory.values(), made.sizes.values()
        panels = ceil_divide(n, columns)
        base = T.alloc_buffer((1,), "int64", scope="local") if strided else None
        with T.serial(begin, end) as item:
            matrix, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * columns
            if base is not None:
                heads, row, outer, inner = given
                start = matrix_start(matrix, heads, outer, inner)
                T.buffer_store(base, start + first * (row if transposed else number(1)), [zero])
            width = tirx.min(columns, n - first)
            with T.serial(zero, k) as step:

                def copy(column: Any) -> None:
                    if base is not None:
                        row = given[1]
                        at = base[zero] + (column * row + step if transposed else step * row + column)
                    elif transposed:
                        at = (matrix * n + first + column) * k + step
                    else:
                        at = (matrix * k + step) * n + first + column
                    T.buffer_store(out, b[at], [(item * k + step) * columns + column])

                with T.If(width == columns):
                    with T.Then(), T.serial(zero, columns) as column:
                        copy(column)
                    with T.Else():
                        with T.serial(zero, width) as column:
                            copy(column)
                        with T.serial(width, columns) as column:
                            T.buffer_store(out, tirx.FloatImm("float32", 0.0), [(item * k + step) * columns + column])
    return made.function
