# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""Products of float32 matrices: a register-tiled kernel over packed panels, and the kernels that pack.

The right operand is packed into panels of NR columns, [panels, K, NR], zeros where the last panel is not full; a
constant one when the model is built, another before each product. The kernel holds a tile of MR rows x NR columns in
registers and goes along K once, which reads MR + NR numbers for MR x NR multiply-adds.

Source of the form: K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008;
the tile sizes were measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.targets._native.machine import Machine

ROWS = 64
"""Rows of the left operand in one work item: few enough to spread over threads, enough to use a panel several times."""

MATMUL, PACK, PACK_TRANSPOSED = "softq_matmul", "softq_pack", "softq_pack_transposed"
"""Symbols."""


@dataclass(frozen=True)
class Tile:
    """What is held in registers: `rows` x `vectors` vectors of `lanes` numbers."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes


def tile_of(machine: Machine) -> Tile:
    """Return the tile for a machine: accumulators fill its registers but for one row of the right operand."""
    if not machine.vector_bytes:
        return Tile(4, 4, 1)
    lanes = machine.lanes(32)
    # Of 32 registers 8 x 3 + 3 are in use, of 16 4 x 3 + 3 or, where there is no multiply by a broadcast load, 1 more.
    return Tile(8, 3, lanes) if machine.vectors >= 32 else Tile(4, 3, lanes)


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


def _int(value: int) -> Any:
    return tirx.IntImm("int64", value)


def _vector(start: Any, lanes: int) -> Any:
    return start if lanes == 1 else tirx.Ramp(start, _int(1), lanes)


def _broadcast(value: Any, lanes: int) -> Any:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def matmul_kernel(tile: Tile) -> tirx.PrimFunc:
    """Return `softq_matmul(a, panels, c, m, k, n, begin, end)` for `batch` products, a matrix of panels for each.

    Work items are numbered over batch, blocks of `ROWS` rows, and panels.
    """
    lanes, columns = tile.lanes, tile.columns
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(MATMUL)
        pointers = [T.arg(name, T.handle("float32")) for name in ("a", "b", "c")]
        m, k, n, begin, end = (T.arg(name, T.int64()) for name in ("m", "k", "n", "begin", "end"))
        T.func_attr({"global_symbol": MATMUL, "tirx.noalias": True})
        a, b, c = (T.decl_buffer((end * m * n * k,), "float32", data=p, align=4) for p in pointers)
        sums = T.alloc_buffer((tile.rows * columns,), "float32", scope="local")
        panels = tirx.truncdiv(n + _int(columns - 1), _int(columns))
        blocks = tirx.truncdiv(m + _int(ROWS - 1), _int(ROWS))

        def position(index: int) -> list[Any]:
            return [_vector(_int(index * lanes), lanes)]

        def compute(rows: int, left: Any, right: Any, out: Any, first: Any) -> None:
            for i in range(rows * tile.vectors):
                T.buffer_store(sums, _broadcast(tirx.FloatImm("float32", 0.0), lanes), position(i))
            with T.serial(_int(0), k) as step:
                values = [
                    b[_vector(right + step * _int(columns) + _int(v * lanes), lanes)] for v in range(tile.vectors)
                ]
                for row in range(rows):
                    factor = _broadcast(a[left + _int(row) * k + step], lanes)
                    for v, value in enumerate(values):
                        at = position(row * tile.vectors + v)
                        T.buffer_store(sums, sums[at[0]] + factor * value, at)
            with T.If(first + _int(columns) <= n):
                with T.Then():
                    for row in range(rows):
                        for v in range(tile.vectors):
                            at = out + _int(row) * n + first + _int(v * lanes)
                            T.buffer_store(c, sums[position(row * tile.vectors + v)[0]], [_vector(at, lanes)])
                with T.Else():
                    for row in range(rows):
                        with T.serial(_int(0), n - first) as column:
                            at = out + _int(row) * n + first + column
                            T.buffer_store(c, sums[_int(row * columns) + column], [at])

        with T.serial(begin, end) as item:
            # All are positive, and truncation needs no correction for negative ones.
            panel, block = tirx.truncmod(item, panels), tirx.truncmod(tirx.truncdiv(item, panels), blocks)
            batch = tirx.truncdiv(tirx.truncdiv(item, panels), blocks)
            right = (batch * panels + panel) * k * _int(columns)
            top = block * _int(ROWS)
            rows = tirx.min(_int(ROWS), m - top)
            first = panel * _int(columns)
            whole = tirx.truncdiv(rows, _int(tile.rows))
            with T.serial(_int(0), whole) as part:
                row = batch * m + top + part * _int(tile.rows)
                compute(tile.rows, row * k, right, row * n, first)
            with T.serial(_int(0), rows - whole * _int(tile.rows)) as part:
                row = batch * m + top + whole * _int(tile.rows) + part
                compute(1, row * k, right, row * n, first)
    return builder.get()


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
        panels = tirx.truncdiv(n + _int(columns - 1), _int(columns))

        with T.serial(begin, end) as item:
            batch, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * _int(columns)
            width = tirx.min(_int(columns), n - first)
            with T.serial(_int(0), k) as step:
                to = (item * k + step) * _int(columns)

                def source(column: Any) -> Any:
                    if transposed:
                        return b[(batch * n + first + column) * k + step]
                    return b[(batch * k + step) * n + first + column]

                with T.If(width == _int(columns)):
                    with T.Then(), T.serial(_int(0), _int(columns)) as column:
                        T.buffer_store(out, source(column), [to + column])
                    with T.Else():
                        with T.serial(_int(0), width) as column:
                            T.buffer_store(out, source(column), [to + column])
                        with T.serial(width, _int(columns)) as column:
                            T.buffer_store(out, tirx.FloatImm("float32", 0.0), [to + column])
    return builder.get()
