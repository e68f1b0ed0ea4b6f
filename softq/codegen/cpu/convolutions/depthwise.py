"""Convolutions of one channel of the input at a time, whose elements are sums of few products.

The plane is copied into memory of the thread, with zeros around it and split into phases by the strides. There
positions are numbered row by row, so that what the windows of consecutive positions read for one element of the kernel
are consecutive numbers, also across the ends of rows: narrow images fill vectors as wide ones do. What stands for
positions between the rows is left out when rows are written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.convolutions.finishing import applied, finish_run, pointers_of, same
from softq.codegen.cpu.convolutions.phases import TAKEN
from softq.codegen.cpu.convolutions.spans import windows_span
from softq.codegen.cpu.gemm.tiles import Sums, Tile, ceil_divide, number, positions, vector
from softq.codegen.cpu.rows.tir import broadcast, shuffle
from softq.compiler.steps.product import Apply, Epilogue
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

CHUNK = 1 << 11
"""Positions that are computed before they are written: few enough to stay in the first cache."""

_AXES = ("rows", "columns")

SIZES = (
    "outer", "total", "height", "width", "rows", "columns", "kernel_rows", "kernel_columns", "stride_rows",
    "stride_columns", "dilation_rows", "dilation_columns", "before_rows", "before_columns", "channels",
)  # fmt: skip
"""The kernel's scalars: results of each channel; elements of the input; lengths of its planes and of the result's; the
kernel; how far windows and elements of a window are apart; zeros in front; channels of the input."""


def symbol_of(stride: int) -> str:
    """Return the name of the kernel for a stride of columns."""
    return f"softq_depthwise_{stride if stride <= TAKEN else 'any'}"


def scratch_bytes(sizes: dict[str, Size], tile: Tile) -> Size:
    """Return the bytes that a thread needs."""
    spans = {axis: windows_span(sizes, axis) for axis in _AXES}
    lengths = [ceiling(spans[axis], sizes[f"stride_{axis}"]) for axis in _AXES]
    slack = 9 * tile.lanes
    plane = computed("add", multiplied(lengths), slack)
    planes = multiplied([plane, sizes["stride_rows"], sizes["stride_columns"]])
    taps = multiplied([sizes["kernel_rows"], sizes["kernel_columns"], 2])
    chunk = computed("add", computed("max", CHUNK, lengths[1]), slack)
    elements = [taps, planes, chunk, chunk]
    total: Size = slack
    for part in elements:
        total = computed("add", total, part)
    return multiplied([total, 4])


def depthwise_kernel(lanes: int, stride: int, symbol: str, epilogue: Epilogue | None) -> tirx.PrimFunc:
    """Return the kernel for a stride of columns.

        void symbol(const float *x, const float *w, const float *bias, float *y, others..., void *scratch,
                    int64_t SIZES..., int64_t begin, int64_t end)

    `x` is [batch x channels, height, width], `w` [channels x outer, kernel], `bias` [channels x outer], `y` [batch x
    channels x outer, rows, columns]. A work item is a channel of an image.

    Args:
        lanes: Numbers of a vector, more than one.
        stride: How many columns windows are apart.
        symbol: The kernel's name.
        epilogue: What is done to each element of the result; what it reads stands behind `y`.
    """
    with kernel_function(symbol, *pointers_of(epilogue, SIZES)) as made:
        _Builder(Tile(1, 8, lanes), stride, made, applied(epilogue, made) or same).emit()
    return made.function


class _Builder(Emitter):
    def __init__(self, tile: Tile, stride: int, made: KernelFunction, apply: Apply) -> None:
        super().__init__(made)
        self._tile, self._stride, self._apply = tile, stride, apply
        self._sums = Sums(tile)

    def emit(self) -> None:
        size, zero, one, lanes = self._size, number(0), number(1), self._tile.lanes
        height, width = (
            self._keep(
                ceil_divide(
                    (size[axis] - one) * size[f"stride_{axis}"]
                    + (size[f"kernel_{axis}"] - one) * size[f"dilation_{axis}"]
                    + one,
                    size[f"stride_{axis}"],
                )
            )
            for axis in _AXES
        )
        plane = self._keep(height * width + number(9 * lanes))
        taps = self._keep(size["kernel_rows"] * size["kernel_columns"])
        planes = self._keep(plane * size["stride_rows"] * size["stride_columns"])
        lines = self._keep(tirx.max(one, tirx.truncdiv(number(CHUNK), width)))
        room = self._keep(tirx.max(number(CHUNK), width) + number(9 * lanes))
        offsets = self._scratch(zero, "int64")
        self._planes = self._scratch(taps * number(8))
        self._run = self._scratch(taps * number(8) + planes * number(4))
        self._dense = self._scratch(taps * number(8) + (planes + room) * number(4))
        with T.serial(zero, size["kernel_rows"]) as i, T.serial(zero, size["kernel_columns"]) as j:
            down, right = i * size["dilation_rows"], j * size["dilation_columns"]
            rows, columns = size["stride_rows"], size["stride_columns"]
            phase = tirx.truncmod(down, rows) * columns + tirx.truncmod(right, columns)
            shift = tirx.truncdiv(down, rows) * width + tirx.truncdiv(right, columns)
            T.buffer_store(offsets, phase * plane + shift, [i * size["kernel_columns"] + j])
        with T.serial(zero, planes) as at:
            T.buffer_store(self._planes, tirx.FloatImm("float32", 0.0), [at])
        with T.serial(size["begin"], size["end"]) as item:
            self._copy(item, height, width, plane)
            with T.serial(zero, size["outer"]) as o:
                channel = self._keep(tirx.truncmod(item, size["channels"]) * size["outer"] + o)
                out = self._keep((item * size["outer"] + o) * size["rows"] * size["columns"])
                with T.serial(zero, ceil_divide(size["rows"], lines)) as part:
                    top = self._keep(part * lines)
                    high = self._keep(tirx.min(lines, size["rows"] - top))
                    count = self._keep(ceil_divide((high - one) * width + size["columns"], lanes))
                    self._add(offsets, taps, channel, top * width, count)
                    self._write(channel, out + top * size["columns"], high, width)

    def _copy(self, item: Any, height: Any, width: Any, plane: Any) -> None:
        """Emit the copy of a plane; the zeros around it stay from the beginning."""
        size, zero, lanes = self._size, number(0), self._tile.lanes
        rows, columns, above, before = (size[f"{name}_{axis}"] for name in ("stride", "before") for axis in _AXES)
        step = number(self._stride) if self._stride <= TAKEN else columns
        with T.serial(zero, columns) as b:
            first = self._keep(ceil_divide(tirx.max(zero, before - b), step))
            behind = ceil_divide(tirx.max(zero, size["width"] + before - b), step)
            count = self._keep(tirx.max(zero, tirx.min(width, behind) - first))
            # What is read between the columns exists as long as another column follows.
            inside = tirx.max(zero, count - number(int(self._stride > 1)))
            whole = self._keep(tirx.truncdiv(inside, number(lanes)) if self._stride <= TAKEN else zero)
            done = self._keep(whole * number(lanes))
            left = self._keep(count - done)
            with T.serial(zero, rows) as a:
                top = self._keep(ceil_divide(tirx.max(zero, above - a), rows))
                bottom = self._keep(tirx.min(height, ceil_divide(tirx.max(zero, size["height"] + above - a), rows)))
                start = self._keep((a * columns + b) * plane + first)
                source = self._keep((item * size["height"] + a - above) * size["width"] + first * step + b - before)
                with positions(top, bottom) as row:
                    there = self._keep(source + row * rows * size["width"])
                    to = self._keep(start + row * width)
                    if self._stride <= TAKEN:
                        with T.serial(zero, whole) as v:
                            at = vector(to + v * number(lanes), lanes)
                            T.buffer_store(self._planes, self._taken(there + v * number(lanes * self._stride)), [at])
                        # The last vector reaches over the end of the row: zeros stand there until the next is written.
                        with T.If(there + (done + number(lanes)) * step <= size["total"]):
                            with T.Then():
                                self._copy_some(there + done * step, to + done, left)
                            with T.Else():
                                self._copy_each(there, to, (done, count), step)
                    else:
                        self._copy_each(there, to, (done, count), step)

    def _copy_each(self, there: Any, to: Any, columns: tuple[Any, Any], step: Any) -> None:
        with positions(*columns) as i:
            T.buffer_store(self._planes, self._memory["x"][there + i * step], [to + i])

    def _taken(self, at: Any) -> Any:
        """Return a vector of every `stride`th number."""
        lanes, step = self._tile.lanes, self._stride
        loads = [self._memory["x"][vector(at + number(i * lanes), lanes)] for i in range(step)]
        return loads[0] if step == 1 else shuffle(loads, range(0, lanes * step, step))

    def _copy_some(self, at: Any, to: Any, count: Any) -> None:
        lanes = self._tile.lanes
        lane = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), lanes)
        inside = lane < broadcast(tirx.Cast("int32", count), lanes)
        around = broadcast(tirx.FloatImm("float32", 0.0), lanes)
        T.buffer_store(self._planes, tirx.Select(inside, self._taken(at), around), [vector(to, lanes)])

    def _add(self, offsets: Any, taps: Any, channel: Any, first: Any, count: Any) -> None:
        """Emit the sums of `count` vectors of positions from the first on."""
        tile, zero = self._tile, number(0)
        done, bias = self._keep(zero), broadcast(self._memory["bias"][channel], tile.lanes)
        vectors = tile.vectors
        start = self._keep(first)
        while vectors:
            with T.serial(zero, tirx.truncdiv(count - done, number(vectors))):
                at = done * number(tile.lanes)
                for v in range(vectors):
                    self._sums.set(0, v, bias)
                with T.serial(zero, taps) as tap:
                    factor = broadcast(self._memory["w"][channel * taps + tap], tile.lanes)
                    here = offsets[tap] + start + at
                    for v in range(vectors):
                        value = self._planes[vector(here + number(v * tile.lanes), tile.lanes)]
                        self._sums.set(0, v, self._sums.get(0, v) + factor * value)
                for v in range(vectors):
                    T.buffer_store(self._run, self._sums.get(0, v), [vector(at + number(v * tile.lanes), tile.lanes)])
                self._put(done, done + number(vectors))
            vectors //= 2

    def _write(self, channel: Any, out: Any, high: Any, width: Any) -> None:
        """Emit the way of rows into the result."""
        size, zero, lanes = self._size, number(0), self._tile.lanes
        columns = size["columns"]
        apply: Callable[..., Any] = partial(self._apply, channel=channel)
        to = self._keep(out)
        with T.If(columns >= number(lanes)):
            with T.Then(), T.serial(zero, high) as row:
                target = self._memory["y"], to + row * columns
                finish_run(self._tile, apply, (self._run, row * width), target, columns, short=False)
            with T.Else():
                # Vectors reach over the end of a row, before what stands in the next one.
                with T.serial(zero, high) as row:
                    value = self._run[vector(row * width, lanes)]
                    T.buffer_store(self._dense, value, [vector(row * columns, lanes)])
                finish_run(self._tile, apply, (self._dense, zero), (self._memory["y"], to), high * columns)
