"""Products of rows and columns of bytes by vectors, whose products a processor adds up to one number (MVE)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.dot_product import VECTORS
from softq.codegen.cpu.gemm.runs_matrix import RunsMatrix
from softq.codegen.cpu.gemm.tiles import ceil_divide, number, vector
from softq.codegen.cpu.rows.tir import intrinsic, reinterpret

_COLUMNS = 4
"""Sums at once: as many as a vector has, in which they are finished."""

_PLAIN = (tirx.IntImm("int32", 0),) * 3
"""Signed numbers, added, each with the one of its own lane."""


def multiply_by_vectors(
    left: RunsMatrix,
    right: RunsMatrix,
    sizes: tuple[Any, Any, Any],
    start: Callable[[Any, Any], Any],
    store: Callable[[Any, Any, Any], None],
) -> None:
    """Emit the product of some rows and some columns.

    Args:
        left: The rows.
        right: The columns; there is a multiple of four of them in memory.
        sizes: Vectors of a row, the number of rows, and that of columns.
        start: Gives what products are added to, for a row and a column.
        store: Writes the sum of a row and a column.
    """
    zero, block = number(0), number(_COLUMNS)
    groups, rows, columns = sizes
    sums = T.alloc_buffer((_COLUMNS,), "int32", scope="local")
    held = T.alloc_buffer((_COLUMNS,), "int32", scope="local")
    with T.serial(zero, rows) as row, T.serial(zero, ceil_divide(columns, _COLUMNS)) as of_columns:
        column = of_columns * block
        for j in range(_COLUMNS):
            T.buffer_store(sums, start(row, column + number(j)), [number(j)])
        with T.serial(zero, groups) as group:
            ours = _load(left, row, group)
            for j in range(_COLUMNS):
                theirs = _load(right, column + number(j), group)
                added = intrinsic("llvm.arm.mve.vmldava", "int32", 1, *_PLAIN, sums[number(j)], ours, theirs)
                T.buffer_store(sums, added, [number(j)])
        # In memory of their own: the others stay in a register each.
        for j in range(_COLUMNS):
            T.buffer_store(held, sums[number(j)], [number(j)])
        with T.If(column + block <= columns):
            with T.Then(), T.vectorized(zero, block) as lane:
                store(row, column + lane, held[lane])
            with T.Else(), T.serial(zero, columns - column) as lane:
                store(row, column + lane, held[lane])


def _load(matrix: RunsMatrix, row: Any, group: Any) -> Any:
    lanes = VECTORS.count
    position = matrix.start + row * matrix.row + group * number(lanes)
    # Scratch is memory of unsigned bytes.
    return reinterpret(matrix.buffer[vector(position, lanes)], "int8", lanes)
