"""Packing matrices for products of blocks: from wherever their rows are, heads side by side or one behind another."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import Tile, number

PACK, PACK_TRANSPOSED = "softq_block_pack", "softq_block_pack_transposed"
"""Symbols."""


def pack_block_kernel(tile: Tile, transposed: bool) -> tirx.PrimFunc:
    """Return the kernel that packs matrices into panels [matrices, panels, k, columns], with zeros behind the end.

        void softq_block_pack(const float *b, float *panels, int64_t k, int64_t n, int64_t heads, int64_t row,
                              int64_t outer, int64_t inner, int64_t begin, int64_t end)

    A work item is one panel of one matrix. A matrix has k rows of n elements (`transposed`: n rows of k), `row` apart;
    number i starts at i // heads times `outer` and i % heads times `inner`.
    """
    symbol = PACK_TRANSPOSED if transposed else PACK
    columns, zero = number(tile.columns), number(0)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(name, T.handle("float32")) for name in ("b", "panels")]
        names = ("k", "n", "heads", "row", "outer", "inner", "begin", "end")
        k, n, heads, row, outer, inner, begin, end = (T.arg(name, T.int64()) for name in names)
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        b, out = (T.decl_buffer((end * n * k,), "float32", data=p, align=4) for p in pointers)
        panels = tirx.truncdiv(n + columns - number(1), columns)
        base = T.alloc_buffer((1,), "int64", scope="local")

        with T.serial(begin, end) as item:
            matrix, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * columns
            start = tirx.truncdiv(matrix, heads) * outer + tirx.truncmod(matrix, heads) * inner
            T.buffer_store(base, start + first * (row if transposed else number(1)), [zero])
            width = tirx.min(columns, n - first)
            with T.serial(zero, k) as step:
                to = (item * k + step) * columns

                def source(column: Any, step: Any = step) -> Any:
                    return b[base[zero] + (column * row + step if transposed else step * row + column)]

                with T.If(width == columns):
                    with T.Then(), T.serial(zero, columns) as column:
                        T.buffer_store(out, source(column), [to + column])
                    with T.Else():
                        with T.serial(zero, width) as column:
                            T.buffer_store(out, source(column), [to + column])
                        with T.serial(width, columns) as column:
                            T.buffer_store(out, tirx.FloatImm("float32", 0.0), [to + column])
    return builder.get()
