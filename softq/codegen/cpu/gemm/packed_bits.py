"""Products with weights of 4 bits, which stay packed in memory: a panel is unpacked when its products are next.

A byte holds two rows of a column, the first in its low bits, so that vectors run over the columns of a panel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import Matrix, Sums, Tile, block_tiles, ceil_divide, number, vector
from softq.codegen.cpu.rows import tir
from softq.compiler.tir.kernel_function import kernel_function


def pack_columns(array: NDArray[Any], tile: Tile) -> NDArray[Any]:
    """Return numbers of columns [N, K] as panels [panels, K, columns], zeros behind the end."""
    columns, inner = array.shape
    count = -(-columns // tile.columns)
    result = np.zeros((count * tile.columns, inner), array.dtype)
    result[:columns] = array
    return np.ascontiguousarray(result.reshape(count, tile.columns, inner).transpose(0, 2, 1))


def packed_symbol(block: int) -> str:
    """Return the name of the kernel of weights with a scale for each `block` rows."""
    return f"softq_matmul_4_bits_{block}"


def packed_kernel(tile: Tile, block: int) -> tirx.PrimFunc:
    """Return the kernel of y = a w, w = (code - zero) scale.

        void symbol(const float *a, const uint8_t *codes, const float *scales, const float *zeros, float *y,
                    void *scratch, int64_t m, int64_t k, int64_t n, int64_t begin, int64_t end)

    Panels of codes are [panels, K / 2, columns], with K a multiple of `block`, those of scales and zero points [panels,
    K / block, columns]; `a` is [m, k], k <= K. A work item is a panel; the scratch memory takes K x columns numbers.
    """
    floats = ("a", "scales", "zeros", "y")
    types = dict.fromkeys(("a", "codes", "scales", "zeros", "y", "scratch"), "float32")
    types |= {name: "uint8" for name in types if name not in floats}
    with kernel_function(packed_symbol(block), types, ("m", "k", "n")) as made:
        (m, k, n, begin, end), zero = made.sizes.values(), number(0)
        a, codes, scales, zeros, y, scratch = made.memory.values()
        columns, lanes = number(tile.columns), tile.lanes
        weights = T.decl_buffer((number(1),), "float32", data=T.address_of(scratch[0]), align=4)
        done, sums = T.alloc_buffer((1,), "int64", scope="local"), Sums(tile)
        blocks, half = ceil_divide(k, block), number(block // 2)
        with T.serial(begin, end) as panel:
            with T.serial(zero, blocks) as group, T.serial(zero, half) as pair:
                for v in range(tile.vectors):
                    column = number(v * lanes)
                    row = (panel * blocks + group) * half + pair
                    both = tirx.Cast(tir.vector("int32", lanes), codes[vector(row * columns + column, lanes)])
                    beside = vector((panel * blocks + group) * columns + column, lanes)
                    parts = both & tir.const(15, "int32", lanes), both >> tir.const(4, "int32", lanes)
                    for i, part in enumerate(parts):
                        value = (tirx.Cast(tir.vector("float32", lanes), part) - zeros[beside]) * scales[beside]
                        at = ((group * half + pair) * number(2) + number(i)) * columns + column
                        T.buffer_store(weights, value, [vector(at, lanes)])
            first = panel * columns
            width = tirx.min(columns, n - first)
            right = Matrix(weights, zero, columns)
            for rows, vectors, row in block_tiles(tile, width, zero, m, done):
                sums.clear(rows, vectors)
                sums.add_products(rows, Matrix(a, row * k, k), right, k, vectors)
                sums.store(rows, Matrix(y, row * n + first, n), width, vectors)
    return made.function
