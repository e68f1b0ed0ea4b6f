"""Images of 8-bit integers with interleaved channels: the few that one product takes lie side by side.

Images are copied with the zero point around them as [images, blocks, rows, columns, count]: `count` channels of a block
are what a product of `Dot` multiplies at once, in its right operand's form. What a window has of a block for an element
of the kernel is then a number of 32 bits, and neighbouring windows have neighbours. Channels that a block lacks are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.gemm.dot_prepack import of_right
from softq.codegen.cpu.gemm.dot_product import Dot
from softq.codegen.cpu.gemm.tiles import Tile, ceil_divide, number, vector
from softq.codegen.cpu.rows.tir import shuffle
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import computed, multiplied

STRIDES = 4
"""Up to this distance of windows vectors of them are made of whole ones that are read: beyond it most is left out."""

_FEW = 4
"""Lanes of the vectors that rows shorter than a whole one are made of."""

IMAGE_SIZES = (
    "channels", "blocks", "height", "width", "image_rows", "image_columns", "before_rows", "before_columns",
)  # fmt: skip
"""The numbers of the kernel that interleaves: channels of a group and their blocks, rows and columns of the images, of
what is written, and how many zero points stand in front."""


def image_elements(images: Size, sizes: Mapping[str, Size], tile: Tile, dot: Dot) -> Size:
    """Return the numbers of the interleaved images, and of what vectors read behind their end."""
    pixels = multiplied([images, sizes["blocks"], sizes["image_rows"], sizes["image_columns"]])
    return multiplied([computed("add", pixels, STRIDES * tile.lanes), dot.count])


def interleave_symbol(dot: Dot, given: str) -> str:
    """Return the name of `interleave_kernel`."""
    return f"{dot.symbol.replace('dot', 'interleave')}_{given}"


def interleave_kernel(tile: Tile, dot: Dot, given: str) -> tirx.PrimFunc:
    """Return the kernel that interleaves the channels of images.

        void symbol(const G *x, const G *zero, R *image, int64_t IMAGE_SIZES..., int64_t begin, int64_t end)

    A work item is a block of channels of a group of an image. `Dot.right_offset` is added.
    """
    with kernel_function(
        interleave_symbol(dot, given), {"x": given, "zero": given, "image": dot.right}, IMAGE_SIZES
    ) as made:
        _Interleaving(tile, dot, made).emit()
    return made.function


class _Interleaving(Emitter):
    def __init__(self, tile: Tile, dot: Dot, made: KernelFunction) -> None:
        super().__init__(made)
        self._tile, self._dot = tile, dot

    def emit(self) -> None:
        size, zero, count = self._size, number(0), number(self._dot.count)
        rows, columns, before = size["image_rows"], size["image_columns"], size["before_columns"]
        plane = self._keep(size["height"] * size["width"])
        # What is inside along a row.
        start = self._keep(tirx.min(before, columns))
        length = self._keep(tirx.max(zero, tirx.min(columns - start, size["width"])))
        with T.serial(size["begin"], size["end"]) as item:
            image, block = tirx.truncdiv(item, size["blocks"]), tirx.truncmod(item, size["blocks"])
            there = self._keep(tirx.min(count, size["channels"] - block * count))
            first = self._keep((image * size["channels"] + block * count) * plane)
            with T.serial(zero, rows) as row:
                out = self._keep((item * rows + row) * columns)
                above = self._keep(row - size["before_rows"])
                inside = tirx.And(above >= zero, above < size["height"])
                end = self._keep(tirx.Select(inside, start + length, zero))
                begin = self._keep(tirx.Select(inside, start, zero))
                self._fill(out, begin, there)
                self._fill(out + end, columns - end, there)
                source = self._keep(first + above * size["width"])
                self._row(source, plane, out + begin, end - begin, there)

    def _row(self, source: Any, plane: Any, out: Any, length: Any, there: Any) -> None:
        def emit(widths: Sequence[int]) -> None:
            if not widths:
                with T.serial(number(0), length) as at:
                    self._store(out + at, there, lambda i: self._memory["x"][source + i * plane + at])
                return
            with T.If(tirx.And(there == number(self._dot.count), length >= number(widths[0]))):
                with T.Then():
                    self._by_vectors(widths[0], source, plane, out, length)
                with T.Else():
                    emit(widths[1:])

        emit([lanes for lanes in dict.fromkeys((self._tile.lanes, _FEW)) if 1 < lanes <= self._tile.lanes])

    def _fill(self, out: Any, length: Any, there: Any) -> None:
        with T.serial(number(0), length) as at:
            self._store(out + at, there, lambda i: self._memory["zero"][number(0)])

    def _store(self, pixel: Any, there: Any, load: Callable[[Any], Any]) -> None:
        """Emit a pixel of the channels that there are, and zeros for the others."""
        count, given = number(self._dot.count), str(self._memory["x"].dtype)
        with T.serial(number(0), there) as i:
            T.buffer_store(self._memory["image"], of_right(self._dot, given, load(i), 1), [pixel * count + i])
        with T.serial(number(0), count - there) as rest:
            nothing = tirx.IntImm(self._dot.right, 0)
            T.buffer_store(self._memory["image"], nothing, [pixel * count + there + rest])

    def _by_vectors(self, lanes: int, source: Any, plane: Any, out: Any, length: Any) -> None:
        """Emit a row of at least a vector; the last one begins within the one before."""
        count, given = self._dot.count, str(self._memory["x"].dtype)
        order = [i * lanes + pixel for pixel in range(lanes) for i in range(count)]
        with T.serial(number(0), ceil_divide(length, lanes)) as v:
            at = self._keep(tirx.min(v * number(lanes), length - number(lanes)))
            parts = [self._memory["x"][vector(source + number(i) * plane + at, lanes)] for i in range(count)]
            value = shuffle([of_right(self._dot, given, part, lanes) for part in parts], order)
            T.buffer_store(self._memory["image"], value, [vector((out + at) * number(count), lanes * count)])
