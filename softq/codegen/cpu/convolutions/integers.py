"""Convolutions of 8-bit integers as products whose right operand is gathered a panel at a time.

The panel stays in the cache while it is multiplied by all kernels. It is gathered by vectors from images with
interleaved channels (`interleaving`), of which each element of a window has 32 bits.

Both operands have the form of their product (see `gemm.integer_matmul`). With w a kernel's zero point and z that of the
images, the sum of (a - w) (b - z) over K products is a b - w sum(b) + z (K w - sum(a)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.convolutions.interleaving import STRIDES
from softq.codegen.cpu.gemm.dot_prepack import add_up_columns
from softq.codegen.cpu.gemm.dot_product import Dot, dot_block_kernel
from softq.codegen.cpu.gemm.tiles import Tile, call, ceil_divide, number, tile_of_block, vector
from softq.codegen.cpu.rows.tir import broadcast, shuffle
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import computed, multiplied

CHANNELS = 256
"""Channels of the result in a work item: so many sums' starts wait in the thread's memory."""

_RUN = 3
"""Numbers that are kept for each row of the result in a panel."""

SIZES = (
    "groups", "inner", "outer", "blocks", "image_rows", "image_columns", "rows", "columns", "kernel_rows",
    "kernel_columns", "stride_rows", "stride_columns", "dilation_rows", "dilation_columns", "most",
)  # fmt: skip
"""The numbers of the convolution's kernel: channels of a group in the input and in the result, blocks of the former;
lengths of the interleaved images, of the result and of the kernel; how far windows and elements of a window are apart;
channels of a work item."""


def pack_kernels(array: NDArray[Any], dot: Dot) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return kernels [M, C, h, w] as rows [M, blocks, h, w, count], and the sum of each row."""
    count, (outer, inner, *window) = dot.count, array.shape
    blocks = -(-inner // count)
    whole = np.zeros((outer, blocks * count, *window), dot.left)
    whole[:, :inner] = array.astype(np.int16) + dot.left_offset(str(array.dtype))
    rows = whole.reshape(outer, blocks, count, *window).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(rows), whole.sum(axis=(1, 2, 3), dtype=np.int32)


def block_symbol(dot: Dot) -> str:
    """Return the name of `block_kernel`."""
    return f"{dot.symbol}_rows_of_windows"


def block_kernel(machine: Cpu, dot: Dot) -> tirx.PrimFunc:
    """Return the kernel of some rows of kernels and a panel.

        void symbol(const L *a, const R *panel, const int32_t *columns, const int32_t *starts, const int32_t *factors,
                    int32_t *c, int64_t a_row, int64_t c_row, int64_t groups, int64_t width, int64_t begin, int64_t end)

    Products are added to starts[row] + factors[row] * columns[column]; else it is `dot_product.sum_kernel`.
    """
    lanes = tile_of_block(machine).lanes

    def prepare(kernel: KernelFunction) -> Callable[[Any, Any], Any]:
        starts, factors, columns = (kernel.memory[name] for name in ("starts", "factors", "columns"))
        return lambda row, at: columns[at] * broadcast(factors[row], lanes) + broadcast(starts[row], lanes)

    pointers = dict.fromkeys(("columns", "starts", "factors", "c"), "int32")
    return dot_block_kernel(machine, dot, block_symbol(dot), pointers, (), prepare)


def convolution_symbol(dot: Dot, left: str, right: str, stride: int) -> str:
    """Return the name of `convolution_kernel`."""
    return f"{dot.symbol.replace('dot', 'convolution')}_{left}_{right}_{stride}"


def scratch_bytes(steps: Size, tile: Tile) -> Size:
    """Return the bytes that a thread needs for windows of so many groups of numbers."""
    return computed("add", _panel_at(tile), multiplied([computed("add", steps, 1), tile.columns * 4]))


def _panel_at(tile: Tile) -> int:
    return (_RUN * 8 + 4) * tile.columns + 2 * 4 * CHANNELS


def convolution_kernel(machine: Cpu, dot: Dot, left: str, right: str, stride: int) -> tirx.PrimFunc:
    """Return the kernel.

        void symbol(const R *image, const L *w, const int32_t *sums, const int32_t *w_zero, const G *x_zero, int32_t *y,
                    void *scratch, int64_t SIZES..., int64_t begin, int64_t end)

    `image` is what `interleave_kernel` writes, `w` and `sums` are `pack_kernels`', `w_zero` has a zero point for each
    channel of the result, `y` is [batch, groups x outer, rows, columns]. Work items are numbered over images and their
    groups, panels of positions, and blocks of `most` channels.

    Args:
        machine: The processor.
        dot: How integers are multiplied.
        left: Type that the kernels were given in.
        right: Type of the images.
        stride: Columns between windows.
    """
    types = {"image": dot.right, "w": dot.left, "sums": "int32", "w_zero": "int32", "x_zero": right, "y": "int32",
             "scratch": "uint8"}  # fmt: skip
    with kernel_function(convolution_symbol(dot, left, right, stride), types, SIZES) as made:
        offsets = dot.left_offset(left), dot.right_offset(right)
        _Convolution(machine, dot, made, offsets, stride).emit()
    return made.function


class _Convolution(Emitter):
    def __init__(self, machine: Cpu, dot: Dot, made: KernelFunction, offsets: tuple[int, int], stride: int) -> None:
        super().__init__(made)
        self._machine, self._dot, self._tile = machine, dot, tile_of_block(machine)
        self._offsets, self._stride = offsets, stride
        columns, at = self._tile.columns, 0
        self._runs, at = self._scratch(number(at), "int64"), at + _RUN * 8 * columns
        self._of_columns, at = self._scratch(number(at), "int32"), at + 4 * columns
        self._starts, at = self._scratch(number(at), "int32"), at + 4 * CHANNELS
        self._factors, at = self._scratch(number(at), "int32"), at + 4 * CHANNELS
        assert at == _panel_at(self._tile)
        self._panel = self._scratch(number(at), dot.right)

    def emit(self) -> None:
        size, zero, tile = self._size, number(0), self._tile
        count = self._keep(size["rows"] * size["columns"])
        taps = self._keep(size["kernel_rows"] * size["kernel_columns"])
        steps = self._keep(taps * size["blocks"])
        panels, parts = ceil_divide(count, tile.columns), ceil_divide(size["outer"], size["most"])
        with T.serial(size["begin"], size["end"]) as item:
            which = self._keep(tirx.truncdiv(item, panels * parts))
            rest = tirx.truncmod(item, panels * parts)
            first = self._keep(tirx.truncdiv(rest, parts) * number(tile.columns))
            part = self._keep(tirx.truncmod(rest, parts) * size["most"])
            high = self._keep(tirx.min(size["most"], size["outer"] - part))
            wide = self._keep(tirx.min(number(tile.columns), count - first))
            kernel = self._keep(tirx.truncmod(which, size["groups"]) * size["outer"] + part)
            self._gather(which, first, wide)
            for v in range(tile.vectors):
                at = number(v * tile.lanes)
                add_up_columns(self._machine, self._dot, self._panel, self._of_columns, (at, zero, steps, v, 1))
            self._prepare(kernel, high, (taps * size["inner"]).astype("int32"))
            call(
                block_symbol(self._dot),
                T.address_of(self._memory["w"][kernel * steps * number(self._dot.count)]),
                *(T.address_of(x[zero]) for x in (self._panel, self._of_columns, self._starts, self._factors)),
                T.address_of(self._memory["y"][(which * size["outer"] + part) * count + first]),
                *(steps * number(self._dot.count), count, steps, wide, zero, high),
            )

    def _prepare(self, kernel: Any, high: Any, products: Any) -> None:
        """Emit what the sums of each row begin with, and what they have of each column's sum."""
        of_left, of_right = (tirx.IntImm("int32", offset) for offset in self._offsets)
        z = self._memory["x_zero"][number(0)].astype("int32") + of_right
        with T.serial(number(0), high) as row:
            w = self._memory["w_zero"][kernel + row] + of_left
            T.buffer_store(self._factors, tirx.IntImm("int32", 0) - w, [row])
            T.buffer_store(self._starts, z * (products * w - self._memory["sums"][kernel + row]), [row])

    def _gather(self, which: Any, first: Any, wide: Any) -> None:
        """Emit the copy of a panel, [blocks x kernel, columns of the tile, count]."""
        size, zero, one = self._size, number(0), number(1)
        line, width = size["columns"], size["image_columns"]
        top = self._keep(tirx.truncdiv(first, line))
        runs = self._keep(tirx.truncdiv(first + wide - one, line) + one - top)
        with T.serial(zero, runs) as i:
            begin = self._keep(tirx.max((top + i) * line, first))
            inside = begin - (top + i) * line
            numbers = (
                (top + i) * size["stride_rows"] * width + inside * size["stride_columns"],
                begin - first,
                tirx.min((top + i + one) * line, first + wide) - begin,
            )
            for n, value in enumerate(numbers):
                T.buffer_store(self._runs, value, [i * number(_RUN) + number(n)])
        with (
            T.serial(zero, size["blocks"]) as block,
            T.serial(zero, size["kernel_rows"]) as i,
            T.serial(zero, size["kernel_columns"]) as j,
        ):
            row = (which * size["blocks"] + block) * size["image_rows"] + i * size["dilation_rows"]
            there = self._keep(row * width + j * size["dilation_columns"])
            step = (block * size["kernel_rows"] + i) * size["kernel_columns"] + j
            here = self._keep(step * number(self._tile.columns))
            with T.serial(zero, runs) as run:
                source, to, length = (self._keep(self._runs[run * number(_RUN) + number(n)]) for n in range(_RUN))
                self._copy(there + source, here + to, length)

    def _copy(self, source: Any, to: Any, length: Any) -> None:
        """Emit the copy of a run; what is written behind its end is overwritten by what comes there."""
        lanes, count, stride, image = self._tile.lanes, self._dot.count, self._stride, self._memory["image"]
        if lanes == 1 or stride > STRIDES:
            with T.serial(number(0), length) as at:
                value = image[vector((source + at * self._size["stride_columns"]) * number(count), count)]
                T.buffer_store(self._panel, value, [vector((to + at) * number(count), count)])
            return
        whole = lanes * count
        with T.serial(number(0), ceil_divide(length, lanes)) as v:
            start = self._keep((source + v * number(lanes * stride)) * number(count))
            parts = [image[vector(start + number(n * whole), whole)] for n in range(stride)]
            order = [lane * stride * count + i for lane in range(lanes) for i in range(count)]
            value = parts[0] if stride == 1 else shuffle(parts, order)
            T.buffer_store(self._panel, value, [vector((to + v * number(lanes)) * number(count), whole)])
