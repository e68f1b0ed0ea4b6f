"""Products of float32 matrices: a register-tiled kernel over packed panels, and the kernels that pack.

The right operand is packed into panels of NR columns, [panels, K, NR], zeros where the last panel is not full; a
constant one when the model is built, another before each product. The kernel holds a tile of MR rows x NR columns in
registers (`tiles`) and goes along K once, which reads MR + NR numbers for MR x NR multiply-adds.

Source of the form: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008;
the tile sizes were measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import Matrix, Sums, Tile, number
from softq.compiler.steps.epilogue import Epilogue

ROWS = 64
"""Rows of the left operand in one work item: few enough to spread over threads, enough to use a panel several times."""

MATMUL, PACK, PACK_TRANSPOSED = "softq_matmul", "softq_pack", "softq_pack_transposed"
"""Symbols."""


def packed(array: NDArray[np.float32], tile: Tile, transposed: bool) -> NDArray[np.float32]:
    """Return a matrix [K, N] (`transposed`: [N, K]) as panels [panels, K, columns]."""
    matrix = array.T if transposed else array
    inner, columns = matrix.shape
    panels = -(-columns // tile.columns)
    result = np.zeros((panels, inner, tile.columns), np.float32)
    for panel in range(panels):
        part = matrix[:, panel * tile.columns : (panel + 1) * tile.columns]
        result[panel, :, : part.shape[1]] = part
    return result


def matmul_kernel(tile: Tile, symbol: str = MATMUL, epilogue: Epilogue | None = None) -> tirx.PrimFunc:
    """Return `softq_matmul(a, panels, c, m, k, n, step, begin, end)` for `batch` products, a matrix of panels for each.

    Each product takes the rows of `a` that lie `step` behind those of the one before: m, or 0 where all take the same.
    Work items are numbered over batch, panels, and blocks of `ROWS` rows.

    Args:
        tile: What is held in registers.
        symbol: The kernel's name.
        epilogue: What is done to each element; what it reads stands behind `c`.
    """
    columns = tile.columns
    operands = () if epilogue is None else epilogue.operands
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(name, T.handle("float32")) for name in ("a", "b", "c")]
        more = [T.arg(f"operand{i}", T.handle(operand.dtype)) for i, operand in enumerate(operands)]
        m, k, n, ahead, begin, end = (T.arg(name, T.int64()) for name in ("m", "k", "n", "step", "begin", "end"))
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        a, b, c = (T.decl_buffer((end * m * n * k,), "float32", data=p, align=4) for p in pointers)
        others = [T.decl_buffer((end * m * n,), o.dtype, data=p, align=1) for p, o in zip(more, operands, strict=True)]
        sums = Sums(tile)
        # Positions are kept in memory: as expressions they would be copied into each other, and simplified together.
        kept = T.alloc_buffer((6,), "int64", scope="local")
        panels = tirx.truncdiv(n + number(columns - 1), number(columns))
        blocks = tirx.truncdiv(m + number(ROWS - 1), number(ROWS))

        def compute(rows: int) -> None:
            right, first, width, row, left = (kept[number(i)] for i in range(5))
            for vectors in range(1, tile.vectors + 1):
                # The last panel may need fewer vectors than the others.
                least, most = number((vectors - 1) * tile.lanes), number(vectors * tile.lanes)
                with T.If(tirx.And(least < width, width <= most)), T.Then():
                    sums.clear(rows, vectors)
                    sums.add_products(rows, Matrix(a, left * k, k), Matrix(b, right, number(columns)), k, vectors)
                    sums.store(rows, Matrix(c, row * n + first, n), width, vectors)

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
                compute(size)
                for i in (3, 4):
                    T.buffer_store(kept, kept[number(i)] + number(size), [number(i)])

            with T.serial(number(0), tirx.truncdiv(rows, number(tile.rows))):
                strip(tile.rows)
            size = tile.rows // 2
            while size:  # what is left, in halves
                with T.If((rows & number(size)) != number(0)), T.Then():
                    strip(size)
                size //= 2
            if epilogue is not None:
                _finish(tile, epilogue, c, others, (rows, kept[number(2)], kept[number(5)], kept[number(1)]), n)
    return builder.get()


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


def pack_kernel(tile: Tile, transposed: bool) -> tirx.PrimFunc:
    """Return `softq_pack(b, panels, k, n, begin, end)`; a work item is one panel of one matrix."""
    symbol = PACK_TRANSPOSED if transposed else PACK
    columns = tile.columns
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(name, T.handle("float32")) for name in ("b", "panels")]
        k, n, begin, end = (T.arg(name, T.int64()) for name in ("k", "n", "begin", "end"))
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        b, out = (T.decl_buffer((end * n * k,), "float32", data=p, align=4) for p in pointers)
        panels = tirx.truncdiv(n + number(columns - 1), number(columns))

        with T.serial(begin, end) as item:
            batch, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * number(columns)
            width = tirx.min(number(columns), n - first)
            with T.serial(number(0), k) as step:
                to = (item * k + step) * number(columns)

                def source(column: Any) -> Any:
                    if transposed:
                        return b[(batch * n + first + column) * k + step]
                    return b[(batch * k + step) * n + first + column]

                with T.If(width == number(columns)):
                    with T.Then(), T.serial(number(0), number(columns)) as column:
                        T.buffer_store(out, source(column), [to + column])
                    with T.Else():
                        with T.serial(number(0), width) as column:
                            T.buffer_store(out, source(column), [to + column])
                        with T.serial(width, number(columns)) as column:
                            T.buffer_store(out, tirx.FloatImm("float32", 0.0), [to + column])
    return builder.get()
