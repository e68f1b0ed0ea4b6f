"""Convolutions of windows next to each other, whose positions are numbered as those of the image with zeros around it.

A block of rows of all planes is copied into memory of the thread, with the zeros. Then what neighbouring windows read
for one element of the kernel are neighbours, also where a row ends: whatever the width, vectors are full, but for the
columns of zeros, of which the sums are thrown away. A panel of positions and some channels of the image stay in the
first cache while all channels of the result are added to; sums wait in a tile of the thread's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.convolutions.finishing import announce_run, applied, finish_run, pointers_of, same
from softq.codegen.cpu.convolutions.spans import window_reach
from softq.codegen.cpu.gemm.tiles import Sums, Tile, ceil_divide, number, vector
from softq.codegen.cpu.rows.tir import broadcast
from softq.compiler.steps.product import Apply, Epilogue
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import computed, multiplied

UNROLLED = 8
"""Columns of a kernel that are written one after another instead of as a loop."""

SIZES = (
    "inner", "outer", "height", "width", "rows", "columns", "kernel_rows", "kernel_columns", "dilation_rows",
    "dilation_columns", "before_rows", "before_columns", "block_rows", "block_columns", "most", "part",
)  # fmt: skip
"""The kernel's scalars: channels of the image and of the result; lengths of their planes; the kernel; how far elements
of a window are apart; zeros in front; rows, columns and channels of the result in a work item; channels of the image
that are multiplied together."""

_PLANES, _PANEL = 3 << 15, 3 << 12
"""Numbers that stay in the second cache next to the kernels, and that a part of the channels has for some panels."""

_GROUP = 4
"""Panels of positions that are summed together: so often kernels are used while they are in the first cache."""

_ROWS, _COLUMNS, _CHANNELS = 16, 512, 64
"""Of the result in a work item at most: enough items for some threads, few copies of the image."""


def flat_symbol(columns: int, dilation: int) -> str:
    """Return the name of the kernel for kernels of so many columns, so far apart."""
    return f"softq_flat_{columns if columns <= UNROLLED else 'any'}_{dilation}"


def with_blocks(sizes: Mapping[str, Size], tile: Tile) -> dict[str, Size]:
    """Return the scalars in their order, given those that the convolution says."""
    (down, right), inner = (window_reach(sizes, axis) for axis in ("rows", "columns")), sizes["inner"]
    columns = computed("min", sizes["columns"], _COLUMNS)
    line, slice_of_one = multiplied([inner, computed("add", columns, right)]), 1
    rows: Size = _ROWS // 2
    if isinstance(line, int) and isinstance(down, int):
        rows = min(max(_PLANES // max(line, 1) - down, 1), _ROWS)
    if isinstance(right, int) and isinstance(sizes["kernel_rows"], int):
        slice_of_one = sizes["kernel_rows"] * (_GROUP * tile.columns + right)
    blocks: dict[str, Size] = {
        "block_rows": computed("min", sizes["rows"], rows),
        "block_columns": columns,
        "most": computed("min", sizes["outer"], _CHANNELS),
        "part": max(_PANEL // slice_of_one, 1),
    }
    return {name: {**sizes, **blocks}[name] for name in SIZES}


def scratch_bytes(sizes: Mapping[str, Size], tile: Tile) -> Size:
    """Return the bytes that a thread needs."""
    plane = multiplied(
        [computed("add", sizes[f"block_{axis}"], window_reach(sizes, axis)) for axis in ("rows", "columns")]
    )
    planes = computed("add", multiplied([sizes["inner"], plane]), _GROUP * tile.columns)
    return multiplied([computed("add", planes, multiplied([sizes["most"], _GROUP * tile.columns])), 4])


def flat_kernel(tile: Tile, columns: int, dilation: int, symbol: str, epilogue: Epilogue | None) -> tirx.PrimFunc:
    """Return the kernel for kernels of so many columns, so far apart.

        void symbol(const float *x, const float *w, const float *bias, float *y, others..., void *scratch,
                    int64_t SIZES..., int64_t begin, int64_t end)

    `x` is [batch, inner, height, width], `w` [outer, inner, kernel], `bias` [outer], `y` [batch, outer, rows, columns];
    `others` is what the epilogue reads, which is done to each element of the result.
    """
    with kernel_function(symbol, *pointers_of(epilogue, SIZES)) as made:
        apply = applied(epilogue, made)
        _Builder(tile, columns if columns <= UNROLLED else 0, dilation, made, apply).emit()
    return made.function


class _Builder(Emitter):
    def __init__(self, tile: Tile, taps: int, dilation: int, made: KernelFunction, apply: Apply | None) -> None:
        super().__init__(made)
        self._apply = apply or same
        self._tile, self._taps, self._dilation = tile, taps, dilation
        self._tiles = self._scratch(number(0))
        self._wide = _GROUP * tile.columns
        self._planes = self._scratch(self._size["most"] * number(4 * self._wide))
        self._sums = Sums(tile)

    def emit(self) -> None:
        size, zero, one, wide = self._size, number(0), number(1), number(self._wide)
        down, right = ((size[f"kernel_{a}"] - one) * size[f"dilation_{a}"] for a in ("rows", "columns"))
        self._pitch = self._keep(size["block_columns"] + right)
        self._plane = self._keep((size["block_rows"] + down) * self._pitch)
        planes = size["inner"] * self._plane
        self._clear(planes + wide)
        parts, across, lines = (
            self._keep(ceil_divide(size[whole], size[block]))
            for whole, block in (("outer", "most"), ("columns", "block_columns"), ("rows", "block_rows"))
        )
        with T.serial(size["begin"], size["end"]) as item:
            block = self._keep(tirx.truncdiv(item, parts))
            self._first = self._keep(tirx.truncmod(item, parts) * size["most"])
            self._end = self._keep(tirx.min(size["outer"], self._first + size["most"]))
            self._left = self._keep(tirx.truncmod(block, across) * size["block_columns"])
            line = tirx.truncdiv(block, across)
            self._top = self._keep(tirx.truncmod(line, lines) * size["block_rows"])
            self._image = self._keep(tirx.truncdiv(line, lines))
            self._width = self._keep(tirx.min(size["block_columns"], size["columns"] - self._left))
            # Zeros around a plane stay, but blocks have theirs at other places.
            with T.If(across * lines > one), T.Then():
                self._clear(planes)
            self._copy(down, right)
            high = tirx.min(size["block_rows"], size["rows"] - self._top)
            count = self._keep((high - one) * self._pitch + self._width)
            with T.serial(zero, ceil_divide(count, wide)) as group:
                start = self._keep(group * wide)
                width = self._keep(tirx.min(wide, count - start))
                self._finish(start, width, announced=True)
                self._add(start, width)
                self._finish(start, width)

    def _clear(self, elements: Any) -> None:
        with T.serial(number(0), elements) as i:
            T.buffer_store(self._planes, tirx.FloatImm("float32", 0.0), [i])

    def _copy(self, down: Any, right: Any) -> None:
        """Emit the copy of what a block needs of the planes, between the zeros around it."""
        size, zero = self._size, number(0)
        above, before = (self._keep(size["before_rows"] - self._top), self._keep(size["before_columns"] - self._left))
        first = self._keep(tirx.max(zero, above))
        last = tirx.min(size["block_rows"] + down, above + size["height"])
        start = self._keep(tirx.max(zero, before))
        end = self._keep(tirx.min(size["block_columns"] + right, before + size["width"]))
        # Loops begin with 0: TVM takes a number in memory where a loop begins for one of another memory.
        with T.serial(zero, size["inner"]) as channel, T.serial(zero, tirx.max(zero, last - first)) as i:
            row, plane = first + i, self._image * size["inner"] + channel
            source = self._keep((plane * size["height"] + row - above) * size["width"] + start - before)
            out = self._keep(channel * self._plane + row * self._pitch + start)
            with T.serial(zero, tirx.max(zero, end - start)) as column:
                T.buffer_store(self._planes, self._memory["x"][source + column], [out + column])

    def _add(self, start: Any, width: Any) -> None:
        """Emit the sums of all channels of the result for some positions, from one on."""
        size, zero, tile = self._size, number(0), self._tile
        full, lanes, done = number(tile.columns), number(tile.lanes), self._keep(zero)
        whole = self._keep(tirx.truncdiv(width, full))
        rest = self._keep(ceil_divide(width - whole * full, lanes))
        with T.serial(zero, ceil_divide(size["inner"], size["part"])) as part:
            first = self._keep(part * size["part"])
            channels = part, first, self._keep(tirx.min(size["part"], size["inner"] - first))
            self._put(done, self._first)
            for rows in (tile.rows, tile.rows // 2, 1):
                with T.serial(zero, tirx.truncdiv(self._end - done, number(rows))):
                    # The kernels' numbers stay in the first cache for all panels.
                    with T.serial(zero, whole) as panel:
                        self._strip(rows, tile.vectors, done, channels, (start, self._keep(panel * full)))
                    # What fills no panel goes vector by vector.
                    with T.serial(zero, rest) as v:
                        self._strip(rows, 1, done, channels, (start, self._keep(whole * full + v * lanes)))
                    self._put(done, done + number(rows))

    def _finish(self, start: Any, width: Any, *, announced: bool = False) -> None:
        """Emit the way of sums to the result, line by line without the columns of zeros; or that it will be gone."""
        size, zero = self._size, number(0)
        upper = self._keep(tirx.truncdiv(start, self._pitch))
        lower = tirx.truncdiv(start + width - number(1), self._pitch)
        lines = self._keep(lower - upper + number(1))
        with T.serial(zero, self._end - self._first) as i, T.serial(zero, lines) as j:
            channel, row = self._keep(self._first + i), self._top + upper + j
            line = self._keep((upper + j) * self._pitch)
            begin = self._keep(tirx.max(line, start))
            length = self._keep(tirx.max(zero, tirx.min(line + self._width, start + width) - begin))
            plane = self._image * size["outer"] + channel
            to = self._keep((plane * size["rows"] + row) * size["columns"] + self._left + begin - line)
            target = self._memory["y"], to
            if announced:
                announce_run(target, length)
            else:
                source = self._tiles, self._keep(i * number(self._wide) + begin - start)
                finish_run(self._tile, partial(self._apply, channel=channel), source, target, length)

    def _strip(
        self, rows: int, vectors: int, done: Any, channels: tuple[Any, Any, Any], place: tuple[Any, Any]
    ) -> None:
        """Emit what some channels of the image add to some of the result, from channel `done` on."""
        size, tile, zero, sums, (part, first, count) = self._size, self._tile, number(0), self._sums, channels
        start, column = place
        tiles = [
            [
                vector(
                    (done - self._first + number(c)) * number(self._wide) + column + number(v * tile.lanes), tile.lanes
                )
                for v in range(vectors)
            ]
            for c in range(rows)
        ]
        with T.If(part == zero):
            with T.Then():
                for c in range(rows):
                    bias = broadcast(self._memory["bias"][done + number(c)], tile.lanes)
                    for v in range(vectors):
                        sums.set(c, v, bias)
            with T.Else():
                for c in range(rows):
                    for v in range(vectors):
                        sums.set(c, v, self._tiles[tiles[c][v]])
        taps, columns = size["kernel_rows"] * size["kernel_columns"], size["kernel_columns"]
        step = size["inner"] * taps
        with T.serial(zero, count) as i, T.serial(zero, size["kernel_rows"]) as k:
            channel = first + i
            at = self._keep(start + column + channel * self._plane + k * size["dilation_rows"] * self._pitch)
            weight = self._keep((done * size["inner"] + channel) * taps + k * columns)

            def tap(j: Any) -> None:
                here = at + j * number(self._dilation)
                values = [self._planes[vector(here + number(v * tile.lanes), tile.lanes)] for v in range(vectors)]
                for c in range(rows):
                    factor = broadcast(self._memory["w"][weight + number(c) * step + j], tile.lanes)
                    for v, value in enumerate(values):
                        sums.set(c, v, sums.get(c, v) + factor * value)

            if self._taps:
                for j in range(self._taps):
                    tap(number(j))
            else:
                with T.serial(zero, columns) as j:
                    tap(j)
        for c in range(rows):
            for v in range(vectors):
                T.buffer_store(self._tiles, sums.get(c, v), [tiles[c][v]])
