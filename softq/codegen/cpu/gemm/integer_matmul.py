"""Products of matrices of 8-bit integers as int32, over packed panels.

Both operands are brought to one form, whatever their types, by offsets that their zero points get too: b' = b - 128 for
unsigned b, and for a what the processor multiplies (`Dot`), a' = a - 128 for unsigned a or a' = a + 128 for signed a.
With z and w those zero points, the sum of (a' - z) (b' - w) over K products is
a' b' - z sum(b') - w sum(a') + K z w: the sums of columns come with the panels, those of rows with the rows' new form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.gemm.dot_prepack import rows_symbol
from softq.codegen.cpu.gemm.dot_product import PART, Dot
from softq.codegen.cpu.gemm.tiles import Tile, call, ceil_divide, number
from softq.compiler.tir.kernel_function import kernel_function
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

ROWS = 64
"""Rows of the left operand in one work item."""

_SUMS = ROWS * 4
"""Bytes in front of the rows."""


def matmul_symbol(left: str, right: str) -> str:
    """Return the kernel's name for operands of these types."""
    return f"softq_matmul_{left}_{right}"


def pack_weight(array: NDArray[Any], tile: Tile, dot: Dot, transposed: bool) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return a matrix [K, N] (`transposed`: [N, K]) as panels, and columns' sums.

    Panels are [panels, groups, columns, count], or [panels, columns, groups, count] if the product is of runs.
    """
    matrix = np.asarray(array.T if transposed else array).astype(np.int16) + dot.right_offset(str(array.dtype))
    inner, columns = matrix.shape
    panels, groups = -(-columns // tile.columns), -(-inner // dot.count)
    whole = np.zeros((groups * dot.count, panels * tile.columns), dot.right)
    whole[:inner, :columns] = matrix
    order = (2, 3, 0, 1) if dot.runs else (2, 0, 3, 1)
    result = whole.reshape(groups, dot.count, panels, tile.columns).transpose(order)
    sums = whole.sum(axis=0, dtype=np.int32).reshape(panels, tile.columns)
    return np.ascontiguousarray(result), sums


def scratch_bytes(inner: Size, dot: Dot) -> Size:
    """Return the bytes that a thread needs."""
    return computed("add", _SUMS, multiplied([ROWS, ceiling(inner, dot.count), 4]))


def integer_matmul_kernel(tile: Tile, dot: Dot, left: str, right: str) -> tirx.PrimFunc:
    """Return the kernel of `batch` products, a matrix of panels for each.

        void symbol(const A *a, const R *panels, const int32_t *sums, const A *a_zero, const B *b_zero, int32_t *c,
                    void *scratch, int64_t m, int64_t k, int64_t n, int64_t step, int64_t begin, int64_t end)

    Each product takes the rows of `a` that lie `step` behind those of the one before. Work items are numbered over
    batch, panels, and blocks of `ROWS` rows. A is `left`, B is `right`.
    """
    zero = number(0)
    types = {"a": left, "panels": dot.right, "sums": "int32", "a_zero": left, "b_zero": right, "c": "int32",
             "scratch": "uint8"}  # fmt: skip
    with kernel_function(matmul_symbol(left, right), types, ("m", "k", "n", "step")) as made:
        m, k, n, step, begin, end = made.sizes.values()
        columns, count = number(tile.columns), number(dot.count)
        panels, blocks = ceil_divide(n, columns), ceil_divide(m, number(ROWS))
        groups = ceil_divide(k, count)

        def address(name: str, position: Any) -> Any:
            return T.address_of(made.memory[name][position])

        offsets = dot.left_offset(left), dot.right_offset(right)
        z, w = (
            made.memory[name][zero].astype("int64") + number(offset)
            for name, offset in zip(("a_zero", "b_zero"), offsets, strict=True)
        )
        with T.serial(begin, end) as item:
            batch, within = tirx.truncdiv(item, panels * blocks), tirx.truncmod(item, panels * blocks)
            panel, top = tirx.truncdiv(within, blocks), tirx.truncmod(within, blocks) * number(ROWS)
            rows, first = tirx.min(number(ROWS), m - top), panel * columns
            of_rows, of_block = address("scratch", zero), address("scratch", number(_SUMS))
            there = batch * panels + panel
            source = address("a", (batch * step + top) * k)
            call(rows_symbol(dot, left), source, of_block, of_rows, k, groups * count, k, zero - w, zero, rows)
            right_panel = address("panels", there * groups * columns * count)
            out = address("c", (batch * m + top) * n + first)
            numbers = (groups * count, n, groups, tirx.min(columns, n - first), zero - z, k * z * w, zero, rows)
            call(f"{dot.symbol}_sums", of_block, right_panel, address("sums", there * columns), of_rows, out, *numbers)
    return made.function


def words_matmul_kernel(tile: Tile, dot: Dot, sums: str, symbol: str) -> tirx.PrimFunc:
    """Return the kernel of `batch` products of int16, as `integer_matmul_kernel` numbers them; c is float32.

        void symbol(const int16_t *a, const int16_t *panels, float *c, void *scratch, int64_t m, int64_t k, int64_t n,
                    int64_t step, int64_t begin, int64_t end)

    Args:
        tile: The tile of a panel.
        dot: How words are multiplied.
        sums: Symbol of `dot_product.part_kernel`.
        symbol: The kernel's name.
    """
    zero = number(0)
    types = {"a": dot.left, "panels": dot.right, "c": "float32", "scratch": "uint8"}
    with kernel_function(symbol, types, ("m", "k", "n", "step")) as made:
        m, k, n, step, begin, end = made.sizes.values()
        columns, count = number(tile.columns), number(dot.count)
        panels, blocks = ceil_divide(n, columns), ceil_divide(m, number(ROWS))
        groups = ceil_divide(k, count)
        row = groups * count

        def address(name: str, position: Any) -> Any:
            return T.address_of(made.memory[name][position])

        with T.serial(begin, end) as item:
            batch, within = tirx.truncdiv(item, panels * blocks), tirx.truncmod(item, panels * blocks)
            panel, top = tirx.truncdiv(within, blocks), tirx.truncmod(within, blocks) * number(ROWS)
            rows, first, there = tirx.min(number(ROWS), m - top), panel * columns, batch * panels + panel
            source, out = address("a", (batch * step + top) * k), address("c", (batch * m + top) * n + first)
            of_rows, block = address("scratch", zero), number(_SUMS)
            call(rows_symbol(dot, dot.left), source, address("scratch", block), of_rows, k, row, k, zero, zero, rows)
            with T.serial(zero, tirx.max(ceil_divide(k, number(PART)), number(1))) as part:
                start = part * number(PART)
                steps = ceil_divide(tirx.min(number(PART), k - start), count)
                left, right = address("scratch", block + start * number(2)), (there * row + start) * columns
                numbers = (row, n, steps, tirx.min(columns, n - first), part, zero, rows)
                call(sums, left, address("panels", right), out, *numbers)
    return made.function


def pack_symbol(dot: Dot, given: str, transposed: bool, zero_point: int | None = None) -> str:
    """Return the name of the kernel that packs a right operand."""
    less = "" if zero_point is None else f"_less{zero_point}".replace("-", "m")
    return f"{dot.symbol.replace('dot', 'pack')}_{given}{'_transposed' * transposed}{less}"
