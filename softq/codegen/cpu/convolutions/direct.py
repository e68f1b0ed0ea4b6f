"""Convolutions of few channels, depthwise ones among them: products too small for packed panels.

The planes of a group, or what a block of the result needs of them, are copied into memory of the thread, with zeros
around them and, where windows are `stride` columns apart, with the columns of each remainder by the stride one after
another. Then what neighbouring windows read for one element of the kernel are neighbours in memory, whatever stride
and dilation: a vector of results is a chain of multiply-adds of loaded vectors, with no test for the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.finishing import announce_run, applied, finish_run, pointers_of, same
from softq.codegen.cpu.convolutions.phases import copy_columns
from softq.codegen.cpu.convolutions.spans import windows_span
from softq.codegen.cpu.gemm.tiles import Sums, Tile, ceil_divide, number, tile_of_block, vector, vectors_of
from softq.codegen.cpu.rows.tir import broadcast
from softq.compiler.steps.product import Apply, Epilogue
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

_UNROLLED = 8
"""Columns of a kernel that are written one after another instead of as a loop."""


@dataclass(frozen=True)
class Shape:
    """What a kernel's code depends on.

    Attributes:
        stride: How many columns windows are apart.
        taps: Columns of the kernel, or 0 for a loop over any number of them.
    """

    stride: int
    taps: int

    @staticmethod
    def of(stride: int, columns: int) -> Shape:
        """Return the shape for kernels of so many columns."""
        return Shape(stride, columns if columns <= _UNROLLED else 0)

    @property
    def symbol(self) -> str:
        """The kernel's name."""
        return f"softq_convolution_{self.stride}_{self.taps or 'any'}"


SIZES = (
    "groups", "inner", "outer", "height", "width", "rows", "columns", "kernel_rows", "kernel_columns", "stride_rows",
    "stride_columns", "dilation_rows", "dilation_columns", "before_rows", "before_columns", "block_rows",
    "block_columns",
)  # fmt: skip
"""The kernel's scalars: channels of a group in the input and in the result; lengths of the input's planes and of the
result's; the kernel; how far windows and elements of a window are apart; zeros in front; how much of a plane of the
result is computed at once."""

_BLOCK = 1 << 16
"""Elements of the planes that are copied at once, where there is a choice: a quarter of a second-level cache."""

_AHEAD = 4
"""Rows of the result between what is written and what is said to be written soon."""

_ROWS, _COLUMNS = 32, 512
"""Rows and columns of the result in a work item at most, where there is a choice: enough items for some threads."""


def block_of(sizes: dict[str, Size]) -> tuple[Size, Size]:
    """Return the rows and columns of a block: all where there are groups, which are work items already."""
    rows, columns = sizes["rows"], sizes["columns"]
    if sizes["groups"] != 1:
        return rows, columns
    across = computed("min", columns, _COLUMNS)
    line = multiplied([sizes["inner"], windows_span({**sizes, "columns": across}, "columns")])
    if not isinstance(line, int) or not isinstance(sizes["kernel_rows"], int):
        return computed("min", rows, _ROWS // 4), across
    lines = max(_BLOCK // line - sizes["kernel_rows"], 1)
    return computed("min", rows, min(lines, _ROWS)), across


def convolution_tile(machine: Cpu) -> Tile:
    """Return the tile of convolutions of few channels."""
    lanes = tile_of_block(machine).lanes
    return Tile(4, 2 if lanes > 1 and machine.vectors < 32 else 4, lanes)


def scratch_bytes(sizes: dict[str, Size], tile: Tile) -> Size:
    """Return the bytes that a thread needs."""
    sizes = {**sizes, "rows": sizes["block_rows"], "columns": sizes["block_columns"]}
    height = windows_span(sizes, "rows")
    quotient = ceiling(windows_span(sizes, "columns"), sizes["stride_columns"])
    elements = multiplied([sizes["inner"], height, sizes["stride_columns"], quotient])
    table = multiplied([ceiling(sizes["kernel_columns"], 8), 64])
    return computed("add", table, multiplied([computed("add", elements, (tile.rows + 1) * tile.columns), 4]))


def convolution_kernel(tile: Tile, shape: Shape, symbol: str, epilogue: Epilogue | None) -> tirx.PrimFunc:
    """Return the kernel.

        void symbol(const float *x, const float *w, const float *bias, float *y, others..., void *scratch,
                    int64_t SIZES..., int64_t begin, int64_t end)

    `x` is [batch, groups x inner, height, width], `w` [groups x outer, inner, kernel], `bias` [groups x outer], `y`
    [batch, groups x outer, rows, columns]. A work item is a block of the planes of a group of an image.

    Args:
        tile: What is held in registers.
        shape: What the code depends on.
        symbol: The kernel's name.
        epilogue: What is done to each element of the result; what it reads stands behind `y`.
    """
    with kernel_function(symbol, *pointers_of(epilogue, SIZES)) as made:
        _Builder(tile, shape, made).emit(made.sizes["begin"], made.sizes["end"], applied(epilogue, made) or same)
    return made.function


class _Builder:
    def __init__(self, tile: Tile, shape: Shape, made: KernelFunction) -> None:
        self._tile, self._shape, self._size, self._memory = tile, shape, made.sizes, made.memory
        # Numbers that many expressions share are kept in memory: TVM would copy and simplify them together.
        self._kept = T.alloc_buffer((18,), "int64", scope="local")
        table = ceil_divide(self._size["kernel_columns"], 8) * number(64)
        self._offsets = T.decl_buffer((number(1),), "int64", data=self._scratch(number(0)), align=8)
        self._tiles = T.decl_buffer((number(1),), "float32", data=self._scratch(table), align=4)
        planes = table + number(tile.rows * tile.columns * 4)
        self._planes = T.decl_buffer((number(1),), "float32", data=self._scratch(planes), align=4)
        self._sums = Sums(tile)

    def _scratch(self, position: Any) -> Any:
        return T.address_of(self._memory["scratch"][position])

    def _keep(self, at: int, value: Any) -> Any:
        T.buffer_store(self._kept, value, [number(at)])
        return self._kept[number(at)]

    def emit(self, begin: Any, end: Any, apply: Apply) -> None:
        size, zero, one = self._size, number(0), number(1)
        stride = number(self._shape.stride)
        height, width = (
            (size[f"block_{axis}"] - one) * size[f"stride_{axis}"]
            + (size[f"kernel_{axis}"] - one) * size[f"dilation_{axis}"]
            + one
            for axis in ("rows", "columns")
        )
        quotient = self._keep(0, ceil_divide(width, stride))
        plane = self._keep(1, height * stride * quotient)
        with T.serial(zero, size["kernel_columns"]) as k:
            column = k * size["dilation_columns"]
            where = tirx.truncmod(column, stride) * quotient + tirx.truncdiv(column, stride)
            T.buffer_store(self._offsets, where, [k])
        # What is read behind the last plane is no part of a result, but it is read.
        self._clear(size["inner"] * plane + number(self._tile.columns))
        across, down = (ceil_divide(size[axis], size[f"block_{axis}"]) for axis in ("columns", "rows"))
        across = self._keep(8, across)
        blocks = self._keep(9, across * down)
        with T.serial(begin, end) as number_of_block:
            within = tirx.truncmod(number_of_block, blocks)
            item = self._keep(10, tirx.truncdiv(number_of_block, blocks))
            top = self._keep(11, tirx.truncdiv(within, across) * size["block_rows"])
            left = self._keep(12, tirx.truncmod(within, across) * size["block_columns"])
            rows = self._keep(13, tirx.min(size["block_rows"], size["rows"] - top))
            self._keep(14, tirx.min(size["block_columns"], size["columns"] - left))
            # Zeros around a plane stay, but blocks have theirs at other places.
            with T.If(blocks > one), T.Then():
                self._clear(size["inner"] * plane)
            with T.serial(zero, size["inner"]) as channel:
                self._copy(item * size["inner"] + channel, channel * plane, height)
            first = self._keep(16, tirx.truncmod(item, size["groups"]) * size["outer"])
            done = self._keep(2, zero)
            for count in (self._tile.rows, *([1] if self._tile.rows > 1 else [])):
                with T.serial(zero, tirx.truncdiv(size["outer"] - done, number(count))), T.serial(zero, rows) as row:
                    self._row(count, first, item * size["outer"], row, apply)
                    with T.If(row == rows - one), T.Then():
                        self._keep(2, done + number(count))

    def _clear(self, elements: Any) -> None:
        with T.serial(number(0), elements) as i:
            T.buffer_store(self._planes, tirx.FloatImm("float32", 0.0), [i])

    def _copy(self, source: Any, to: Any, height: Any) -> None:
        """Emit the copy of what a block needs of a plane, between the zeros around it."""
        size, zero, stride, quotient = self._size, number(0), number(self._shape.stride), self._kept[number(0)]
        above, before = (
            size[f"before_{axis}"] - self._kept[number(at)] * size[f"stride_{axis}"]
            for axis, at in (("rows", 11), ("columns", 12))
        )
        above, before = self._keep(15, above), self._keep(3, before)
        rows = tirx.max(zero, above), tirx.min(height, above + size["height"])
        with T.serial(*rows) as row, T.serial(zero, stride) as rest:
            start = ceil_divide(tirx.max(zero, before - rest), stride)
            behind = ceil_divide(tirx.max(zero, size["width"] + before - rest), stride)
            out = to + (row * stride + rest) * quotient
            there = (source * size["height"] + row - above) * size["width"] + rest - before
            columns = start, tirx.max(start, tirx.min(quotient, behind))
            x = self._memory["x"], there
            copy_columns(self._tile, self._shape.stride, x, (self._planes, out), columns, lambda v: self._keep(7, v))

    def _row(self, channels: int, first: Any, to: Any, row: Any, apply: Apply) -> None:
        """Emit a row of some channels of a block of the result, from the group's channel `done` on."""
        size, tile, zero, done = self._size, self._tile, number(0), self._kept[number(2)]
        top, left, columns = (self._kept[number(at)] for at in (11, 12, 14))
        with T.serial(zero, ceil_divide(columns, number(tile.columns))) as panel:
            column = self._keep(3, panel * number(tile.columns))
            width = self._keep(4, tirx.min(number(tile.columns), columns - column))
            for vectors in vectors_of(tile, width):
                for c in range(channels):
                    bias = broadcast(self._memory["bias"][first + done + number(c)], tile.lanes)
                    for v in range(vectors):
                        self._sums.set(c, v, bias)
                self._add(channels, vectors, first + done, row, column)
                for c in range(channels):
                    for v in range(vectors):
                        at = vector(number(c * tile.columns + v * tile.lanes), tile.lanes)
                        T.buffer_store(self._tiles, self._sums.get(c, v), [at])
            start = self._keep(17, ((to + done) * size["rows"] + top + row) * size["columns"] + left + column)
            with T.serial(zero, number(channels)) as c:
                target = self._memory["y"], self._keep(7, start + c * size["rows"] * size["columns"])
                finish = partial(apply, channel=first + done + c)
                source = self._tiles, c * number(tile.columns)
                announce_run((target[0], target[1] + size["columns"] * number(_AHEAD)), width)
                finish_run(tile, finish, source, target, width)

    def _add(self, channels: int, vectors: int, first: Any, row: Any, column: Any) -> None:
        size, tile, zero = self._size, self._tile, number(0)
        taps = size["kernel_rows"] * size["kernel_columns"]
        with T.serial(zero, size["inner"]) as channel, T.serial(zero, size["kernel_rows"]) as k:
            line = row * size["stride_rows"] + k * size["dilation_rows"]
            at = channel * self._kept[number(1)] + line * number(self._shape.stride) * self._kept[zero] + column
            start = self._keep(5, at)
            weight = self._keep(6, (first * size["inner"] + channel) * taps + k * size["kernel_columns"])

            def tap(j: Any) -> None:
                here = start + self._offsets[j]
                values = [self._planes[vector(here + number(v * tile.lanes), tile.lanes)] for v in range(vectors)]
                for c in range(channels):
                    factor = broadcast(self._memory["w"][weight + number(c) * size["inner"] * taps + j], tile.lanes)
                    for v, value in enumerate(values):
                        self._sums.set(c, v, self._sums.get(c, v) + factor * value)

            if self._shape.taps:
                for j in range(self._shape.taps):
                    tap(number(j))
            else:
                with T.serial(zero, size["kernel_columns"]) as j:
                    tap(j)
