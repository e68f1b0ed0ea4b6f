"""Convolutions whose kernels are known when the model is built: vectors are of channels of the result.

The kernels are packed in panels of so many channels as a tile has columns; a tile is some positions of the result by a
panel. Every position has a pointer of its own, so that any positions are neighbours: no column is computed in vain,
however narrow the image, and windows may be any stride apart. Elements of a window are where a table says, the same for
all positions. What a tile has summed waits in memory of the thread until some positions are complete; it is transposed
on its way to the result.

Source of the form: M. Dukhan, "The Indirect Convolution Algorithm", 2019 (arXiv:1907.02129), section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.convolutions.finishing import LINE, announce_run, applied, ask_for, finish_run, pointers_of, same
from softq.codegen.cpu.convolutions.spans import windows_span
from softq.codegen.cpu.convolutions.squares import Square
from softq.codegen.cpu.gemm.tiles import Sums, Tile, ceil_divide, number, positions, vector, vectors_of
from softq.codegen.cpu.rows.tir import broadcast
from softq.compiler.steps.product import Apply, Epilogue
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

SIZES = (
    "groups", "inner", "outer", "height", "width", "rows", "columns", "kernel_rows", "kernel_columns", "stride_rows",
    "stride_columns", "dilation_rows", "dilation_columns", "before_rows", "before_columns", "block", "most",
)  # fmt: skip
"""The kernel's scalars: channels of a group in the image and in the result; lengths of their planes; the kernel; how
far windows and elements of a window are apart; zeros in front; rows and channels of the result in a work item."""

GROUP = 192
"""Positions whose sums wait together: so often a part of a panel is used while it is in the first cache."""

_PART = 1 << 13
"""Numbers of a part of a panel, which stay in the first cache."""

_PLANES = 3 << 15
"""Numbers of the image in a work item, which stay in the second cache."""

_SHARED = 192
"""Channels in a work item where there are few positions, so that there are items for more threads."""


def panels_symbol(padded: bool) -> str:
    """Return the name of the kernel for images with zeros around them, or without."""
    return "softq_panels_padded" if padded else "softq_panels"


def pack_kernels(array: NDArray[np.float32], groups: int, tile: Tile) -> NDArray[np.float32]:
    """Return kernels [groups x M, C, h, w] as panels, one behind another: [C h w, columns], of whole vectors."""
    matrix = array.reshape(groups, array.shape[0] // groups, -1)
    width = -(-matrix.shape[1] // tile.lanes) * tile.lanes
    result = np.zeros((groups, matrix.shape[2], width), np.float32)
    result[:, :, : matrix.shape[1]] = matrix.transpose(0, 2, 1)
    parts = [part[:, at : at + tile.columns].reshape(-1) for part in result for at in range(0, width, tile.columns)]
    return np.concatenate(parts)


def with_blocks(sizes: Mapping[str, Size], tile: Tile) -> dict[str, Size]:
    """Return the scalars in their order, given those that the convolution says."""
    rows, outer, most = sizes["rows"], sizes["outer"], sizes["outer"]
    line = multiplied([sizes["inner"], sizes["stride_rows"], windows_span(sizes, "columns")])
    block: Size = computed("min", rows, 8)
    if isinstance(line, int):
        block = computed("min", rows, max(_PLANES // max(line, 1), 1))
    if isinstance(rows, int) and isinstance(block, int) and isinstance(outer, int) and rows < 4 * block:
        most = min(outer, -(-_SHARED // tile.columns) * tile.columns)
    return {name: {**sizes, "block": block, "most": most}[name] for name in SIZES}


def scratch_bytes(sizes: Mapping[str, Size], tile: Tile, padded: bool) -> Size:
    """Return the bytes that a thread needs."""
    steps = multiplied([sizes[name] for name in ("inner", "kernel_rows", "kernel_columns")])
    table = multiplied([ceiling(steps, 8), 64])
    spans = [windows_span({**sizes, "rows": sizes["block"]}, axis) for axis in ("rows", "columns")]
    planes = multiplied([sizes["inner"], *spans]) if padded else 0
    return computed("add", table, multiplied([computed("add", planes, (GROUP + tile.rows) * tile.columns), 4]))


def panels_kernel(tile: Tile, padded: bool, symbol: str, epilogue: Epilogue | None) -> tirx.PrimFunc:
    """Return the kernel for images with zeros around them, or without.

        void symbol(const float *x, const float *w, const float *bias, float *y, others..., void *scratch,
                    int64_t SIZES..., int64_t begin, int64_t end)

    `x` is [batch, groups x inner, height, width], `w` what `pack_kernels` gives, `bias` [groups x outer], `y` [batch,
    groups x outer, rows, columns]; `others` is what the epilogue reads, which is done to each element of the result.

    Args:
        tile: Its rows are positions, its columns channels.
        padded: Whether there are zeros.
        symbol: The kernel's name.
        epilogue: What is done to each element of the result.
    """
    with kernel_function(symbol, *pointers_of(epilogue, SIZES)) as made:
        _Builder(tile, padded, made, applied(epilogue, made) or same).emit()
    return made.function


class _Builder(Emitter):
    def __init__(self, tile: Tile, padded: bool, made: KernelFunction, apply: Apply) -> None:
        super().__init__(made)
        self._tile, self._padded, self._apply, size = tile, padded, apply, self._size
        self._taps = self._keep(size["kernel_rows"] * size["kernel_columns"])
        self._steps = self._keep(self._taps * size["inner"])
        tiles = self._keep(ceil_divide(self._steps, 8) * number(64))
        self._offsets = self._scratch(number(0), "int64")
        self._tiles = self._scratch(tiles)
        self._planes = self._scratch(tiles + number((GROUP + tile.rows) * tile.columns * 4))
        self._sums = Sums(tile)
        self._square = Square(tile.lanes)
        self._places = [T.alloc_buffer((1,), "int64", scope="local") for _ in range(tile.rows)]

    def emit(self) -> None:
        size, zero, columns = self._size, number(0), self._size["columns"]
        high, wide = (self._keep(self._span(axis)) for axis in ("block", "columns"))
        self._pitch = wide if self._padded else size["width"]
        self._plane = self._keep(high * wide if self._padded else size["height"] * size["width"])
        with T.serial(zero, size["inner"]) as c, T.serial(zero, self._taps) as tap:
            down = tirx.truncdiv(tap, size["kernel_columns"]) * size["dilation_rows"]
            right = tirx.truncmod(tap, size["kernel_columns"]) * size["dilation_columns"]
            T.buffer_store(self._offsets, c * self._plane + down * self._pitch + right, [c * self._taps + tap])
        parts, lines = (
            self._keep(ceil_divide(size[whole], size[block])) for whole, block in (("outer", "most"), ("rows", "block"))
        )
        pixels = self._keep(size["rows"] * columns)
        width = self._keep(ceil_divide(size["outer"], self._tile.lanes) * number(self._tile.lanes))
        with T.serial(size["begin"], size["end"]) as item:
            first = self._keep(tirx.truncmod(item, parts) * size["most"])
            last = self._keep(tirx.min(size["outer"], first + size["most"]))
            block = self._keep(tirx.truncdiv(item, parts))
            top = self._keep(tirx.truncmod(block, lines) * size["block"])
            which = self._keep(tirx.truncdiv(block, lines))
            group = self._keep(tirx.truncmod(which, size["groups"]))
            image = self._keep(which * size["inner"] * size["height"] * size["width"])
            start = zero if self._padded else self._keep(image + top * size["stride_rows"] * size["width"])
            if self._padded:
                self._copy(image, top, high, wide)
            count = self._keep(tirx.min(size["block"], size["rows"] - top) * columns)
            groups = self._keep(ceil_divide(count, GROUP))
            each = self._keep(ceil_divide(ceil_divide(count, groups), self._tile.rows) * number(self._tile.rows))
            with T.serial(zero, ceil_divide(count, each)) as part:
                begin = self._keep(part * each)
                length = self._keep(tirx.min(each, count - begin))
                with T.serial(zero, ceil_divide(last - first, self._tile.columns)) as panel:
                    channel = self._keep(first + panel * number(self._tile.columns))
                    kernels = self._keep(self._steps * (group * width + channel))
                    some = self._keep(tirx.min(number(self._tile.columns), last - channel))
                    here = self._keep(group * size["outer"] + channel)
                    to = self._keep((which * size["outer"] + channel) * pixels + top * columns + begin)
                    with T.serial(zero, some) as c:
                        announce_run((self._memory["y"], to + c * pixels), length)
                    for vectors in vectors_of(self._tile, some):
                        self._add(vectors, kernels, (start, begin, length))
                    self._finish(some, (here, to), length, pixels)

    def _span(self, axis: str) -> Any:
        """Return how many rows of the image windows of a block cover, or how many columns all do."""
        size, one, name = self._size, number(1), "rows" if axis == "block" else axis
        reach = (size[f"kernel_{name}"] - one) * size[f"dilation_{name}"]
        return (size[axis] - one) * size[f"stride_{name}"] + reach + one

    def _copy(self, image: Any, top: Any, high: Any, wide: Any) -> None:
        """Emit the copy of what a block needs of the planes, between zeros."""
        size, zero, lanes = self._size, number(0), self._tile.lanes
        above = self._keep(size["before_rows"] - top * size["stride_rows"])
        before = size["before_columns"]
        first = self._keep(tirx.max(zero, tirx.min(high, above)))
        last = self._keep(tirx.max(first, tirx.min(high, above + size["height"])))
        end = self._keep(tirx.max(before, tirx.min(wide, before + size["width"])))

        def clear(begin: Any, end: Any) -> None:
            with positions(begin, end) as at:
                T.buffer_store(self._planes, tirx.FloatImm("float32", 0.0), [at])

        with T.serial(zero, size["inner"]) as channel:
            plane = self._keep(channel * self._plane)
            source = self._keep(image + channel * size["height"] * size["width"] - above * size["width"] - before)
            clear(plane, plane + first * wide)
            clear(plane + last * wide, plane + self._plane)
            with T.serial(zero, last - first) as i:
                row = first + i
                line, there = self._keep(plane + row * wide), self._keep(source + row * size["width"])
                clear(line, line + before)
                clear(line + end, line + wide)
                length = self._keep(end - before)
                with T.If(length >= number(lanes)):
                    with T.Then(), T.serial(zero, ceil_divide(length, lanes)) as v:
                        # The last vector begins within the one before it.
                        at = self._keep(before + tirx.min(v * number(lanes), length - number(lanes)))
                        T.buffer_store(
                            self._planes, self._memory["x"][vector(there + at, lanes)], [vector(line + at, lanes)]
                        )
                    with T.Else(), T.serial(zero, length) as at:
                        T.buffer_store(self._planes, self._memory["x"][there + before + at], [line + before + at])

    def _add(self, vectors: int, kernels: Any, place: tuple[Any, Any, Any]) -> None:
        """Emit the sums of a panel of so many vectors for some positions."""
        tile, zero, (start, begin, length) = self._tile, number(0), place
        most = max(_PART // (vectors * tile.lanes), 1)
        with T.serial(zero, ceil_divide(self._steps, most)) as part:
            first = self._keep(part * number(most))
            steps = self._keep(tirx.min(number(most), self._steps - first))
            weights = self._keep(kernels + first * number(vectors * tile.lanes))
            done, at = self._keep(zero), self._keep(zero)
            for rows in (tile.rows, 2):
                count = length - done
                # Positions beyond the last one are the last one again.
                with T.serial(zero, tirx.truncdiv(count, number(rows)) if rows > 2 else ceil_divide(count, rows)):
                    for r in range(rows):
                        self._put(at, begin + tirx.min(done + number(r), length - number(1)))
                        line = tirx.truncdiv(at, self._size["columns"]) * self._size["stride_rows"] * self._pitch
                        column = tirx.truncmod(at, self._size["columns"]) * self._size["stride_columns"]
                        T.buffer_store(self._places[r], start + line + column, [zero])
                    self._multiply(rows, vectors, (part, first, steps), weights, done)
                    self._put(done, done + number(rows))

    def _multiply(self, rows: int, vectors: int, part: tuple[Any, Any, Any], weights: Any, done: Any) -> None:
        """Emit what a part of the windows of some positions adds to a panel, from position `done` on."""
        tile, zero, sums, (number_of_part, first, steps) = self._tile, number(0), self._sums, part
        lanes = tile.lanes
        places = [
            [vector((done + number(r)) * number(tile.columns) + number(v * lanes), lanes) for v in range(vectors)]
            for r in range(rows)
        ]
        with T.If(number_of_part == zero):
            with T.Then():
                for r in range(rows):
                    for v in range(vectors):
                        sums.set(r, v, broadcast(tirx.FloatImm("float32", 0.0), lanes))
            with T.Else():
                for r in range(rows):
                    for v in range(vectors):
                        sums.set(r, v, self._tiles[places[r][v]])
        source = self._planes if self._padded else self._memory["x"]
        images = [
            T.decl_buffer((number(1),), "float32", data=T.address_of(source[self._places[r][zero]]), align=4)
            for r in range(rows)
        ]
        with T.serial(zero, steps) as step:
            here = weights + step * number(vectors * lanes)
            values = [self._memory["w"][vector(here + number(v * lanes), lanes)] for v in range(vectors)]
            offset = self._offsets[first + step]
            if not self._padded:
                # Planes are far apart, and the same row of each is read before the next one's.
                ask_for((images[0], offset + number(LINE)), written=False)
            for r, image in enumerate(images):
                factor = broadcast(image[offset], lanes)
                for v, value in enumerate(values):
                    sums.set(r, v, sums.get(r, v) + factor * value)
        for r in range(rows):
            for v in range(vectors):
                T.buffer_store(self._tiles, sums.get(r, v), [places[r][v]])

    def _finish(self, some: Any, place: tuple[Any, Any], length: Any, pixels: Any) -> None:
        """Emit the way of the sums of some channels to the result, transposed."""
        zero, lanes, (channel, to) = number(0), self._tile.lanes, place
        columns = number(self._tile.columns)
        bias = self._memory["bias"]

        def finish(value: Any, at: Any, channel: Any) -> Any:
            return self._apply(value + bias[channel], at, channel)

        with T.If(length >= number(lanes)):
            with (
                T.Then(),
                T.serial(zero, ceil_divide(some, lanes)) as v,
                T.serial(zero, ceil_divide(length, lanes)) as part,
            ):
                # The last square begins within the one before it.
                at = self._keep(tirx.min(part * number(lanes), length - number(lanes)))
                self._square.transpose(self._tiles, at * columns + v * number(lanes), self._tile.columns)
                with T.serial(zero, tirx.min(number(lanes), some - v * number(lanes))) as c:
                    here = self._keep(v * number(lanes) + c)
                    target = self._memory["y"], self._keep(to + here * pixels + at)
                    apply = partial(finish, channel=channel + here)
                    finish_run(
                        self._tile, apply, (self._square.columns, c * number(lanes)), target, number(lanes), short=False
                    )
            with T.Else(), T.serial(zero, some) as c, T.serial(zero, length) as at:
                here = self._keep(to + c * pixels + at)
                value = finish(self._tiles[at * columns + c], here, channel + c)
                T.buffer_store(self._memory["y"], value, [here])
