"""Convolutions as products of matrices whose windows are gathered a block at a time, in memory that stays in the cache.

Positions of the result are numbered as those of the input: what their windows have for one element of the kernel lies
in consecutive places, all of them shifted alike, so that it is copied as vectors; where a shift leads over an edge of
the image there are zeros. Of windows that are a stride apart the input is first split into its phases (`phases`), in
each of which they are neighbours. A block of positions is multiplied by all kernels with the tiles of every product.
Columns of the input that have no window are multiplied too and left out of the result.

Source of the form: M. Dukhan, "The Indirect Convolution Algorithm", 2019 (arXiv:1907.02129), section 2.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.convolutions.finishing import announce_run, applied, finish_run, pointers_of, same
from softq.codegen.cpu.gemm.matmul import BLOCK
from softq.codegen.cpu.gemm.tiles import Tile, call, ceil_divide, number, positions, vector
from softq.compiler.steps.product import Apply, Epilogue
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

WINDOWS = "softq_windows"
"""The symbol; that of a kernel with an epilogue has its name behind it."""

ROWS = 48
"""Rows of the result that are finished together: a multiple of all tiles' rows, which stays in the first cache."""

STEPS = 512
"""Elements of windows that are multiplied in one go: a panel of so many rows stays in a cache next to the processor."""

_TAP = 6
"""Numbers that are kept for each element of the kernel."""

SIZES = (
    "groups", "inner", "outer", "phase_rows", "phase_columns", "height", "width", "rows", "columns", "kernel_rows",
    "kernel_columns", "stride_rows", "stride_columns", "dilation_rows", "dilation_columns", "before_rows",
    "before_columns", "total", "block", "most", "direct",
)  # fmt: skip
"""The kernel's scalars: channels of a group in the input and in the result; phases of the input and their lengths; the
result's lengths; the kernel; how far windows and elements of a window are apart; zeros in front; elements of the input;
positions and channels of a work item; whether the input is its windows."""


def windows_kernel(tile: Tile, symbol: str, epilogue: Epilogue | None) -> tirx.PrimFunc:
    """Return the kernel.

        void symbol(const float *x, const float *w, const float *bias, float *y, others..., void *scratch,
                    int64_t SIZES..., int64_t begin, int64_t end)

    `x` is [batch, groups x inner, phase_rows, phase_columns, height, width], `w` [groups x outer, inner, kernel],
    `bias` [groups x outer], `y` [batch, groups x outer, rows, columns]. Columns are at most `width`.

    Args:
        tile: That of `softq_block`.
        symbol: The kernel's name.
        epilogue: What is done to each element of the result; what it reads stands behind `y`.
    """
    with kernel_function(symbol, *pointers_of(epilogue, SIZES)) as made:
        _Builder(tile, made, applied(epilogue, made) or same).emit()
    return made.function


def scratch_bytes(steps: Size, taps: Size, block: Size, tile: Tile) -> Size:
    """Return the bytes that a thread needs for windows of so many elements, of which `taps` for each channel."""
    table = multiplied([ceiling(multiplied([taps, 8 * _TAP]), 64), 64])
    return computed("add", computed("add", table, ROWS * tile.columns * 4), multiplied([steps, block, 4]))


class _Builder(Emitter):
    def __init__(self, tile: Tile, made: KernelFunction, apply: Apply) -> None:
        super().__init__(made)
        self._tile, self._apply = tile, apply
        self._tiles = self._scratch(number(0))
        self._table = self._scratch(number(ROWS * tile.columns * 4), "int64")
        self._taps = self._keep(self._size["kernel_rows"] * self._size["kernel_columns"])
        table = self._keep(ceil_divide(self._taps * number(8 * _TAP), 64) * number(64))
        self._panels = self._scratch(number(ROWS * tile.columns * 4) + table)

    def emit(self) -> None:
        size, zero, one = self._size, number(0), number(1)
        width, rows, columns = size["width"], size["rows"], size["columns"]
        plane = self._keep(size["height"] * width)
        channel = self._keep(plane * size["phase_rows"] * size["phase_columns"])
        self._inner = self._keep(self._taps * size["inner"])
        count = self._keep((rows - one) * width + columns)
        dense = columns == width
        # Where every column has a window, all positions are one run.
        run = self._keep(tirx.Select(dense, count, width))
        kept = self._keep(tirx.Select(dense, count, columns))
        blocks, parts = ceil_divide(count, size["block"]), ceil_divide(size["outer"], size["most"])
        with T.serial(size["begin"], size["end"]) as item:
            which = tirx.truncdiv(item, blocks * parts)
            rest = tirx.truncmod(item, blocks * parts)
            first = self._keep(tirx.truncdiv(rest, parts) * size["block"])
            part = self._keep(tirx.truncmod(rest, parts) * size["most"])
            end = self._keep(tirx.min(size["outer"], part + size["most"]))
            group = self._keep(tirx.truncmod(which, size["groups"]) * size["outer"])
            image = self._keep(which * size["inner"] * channel)
            out = self._keep(which * size["outer"])
            length = self._keep(tirx.min(size["block"], count - first))
            whole = length == number(self._tile.columns)
            direct = tirx.And(size["direct"] != zero, whole)
            with T.If(tirx.Not(direct)), T.Then():
                self._gather(image, first, length, plane, channel)
            with T.serial(zero, ceil_divide(length, self._tile.columns)) as panel:
                column = self._keep(panel * number(self._tile.columns))
                wide = self._keep(tirx.min(number(self._tile.columns), length - column))
                with T.serial(zero, ceil_divide(end - part, ROWS)) as strip:
                    top = self._keep(part + strip * number(ROWS))
                    high = self._keep(tirx.min(number(ROWS), end - top))
                    self._finish((group, out, top, high), first + column, wide, (run, kept), announced=True)
                    with T.If(direct):
                        with T.Then():
                            self._multiply(self._memory["x"], image + first, plane, group + top, high, wide)
                        with T.Else():
                            self._multiply(self._panels, column, size["block"], group + top, high, wide)
                    self._finish((group, out, top, high), first + column, wide, (run, kept))

    def _gather(self, image: Any, first: Any, length: Any, plane: Any, channel: Any) -> None:
        """Emit the copy of a block of positions into the panel, [inner x kernel, block]."""
        size, zero, lanes = self._size, number(0), self._tile.lanes
        taps = self._taps
        top = self._keep(tirx.truncdiv(first, size["width"]))
        bottom = self._keep(tirx.truncdiv(first + length - number(1), size["width"]) + number(1))
        vectors = self._keep(ceil_divide(length, lanes))
        with T.serial(zero, size["kernel_rows"]) as i, T.serial(zero, size["kernel_columns"]) as j:
            down, row_phase = self._shift(i, "rows")
            right, column_phase = self._shift(j, "columns")
            start = self._keep(down * size["width"] + right + first)
            begin = self._keep(tirx.max(zero, tirx.min(zero - start, length)))
            # Columns of each row that a shift leads over an edge.
            edge = self._keep(tirx.Select(right < zero, zero, tirx.max(zero, size["width"] - right)))
            beyond = tirx.min(tirx.Select(right < zero, zero - right, right), size["width"])
            some = tirx.And(edge < size["columns"], beyond > zero)
            numbers = (
                (row_phase * size["phase_columns"] + column_phase) * plane + start,
                begin,
                tirx.max(begin, tirx.min(plane - start, length)),
                top * size["width"] + edge - first,
                tirx.Select(some, beyond, zero),
                tirx.Select(some, bottom - top, zero),
            )
            for n, value in enumerate(numbers):
                T.buffer_store(self._table, value, [(i * size["kernel_columns"] + j) * number(_TAP) + number(n)])
        total = self._keep(size["total"] - vectors * number(lanes))
        with T.serial(zero, size["inner"]) as c, T.serial(zero, taps) as tap:
            there = self._keep(image + c * channel + self._table[tap * number(_TAP)])
            begin, end, edge, beyond, rows = (
                self._keep(self._table[tap * number(_TAP) + number(n)]) for n in range(1, 6)
            )
            here = self._keep((c * taps + tap) * size["block"])
            # What stands before and behind the image is read too where there is anything, and overwritten.
            with T.If(tirx.And(there >= zero, there <= total)):
                with T.Then(), T.serial(zero, vectors) as v:
                    value = self._memory["x"][vector(there + v * number(lanes), lanes)]
                    T.buffer_store(self._panels, value, [vector(here + v * number(lanes), lanes)])
                with T.Else():
                    with positions(begin, end) as at:
                        T.buffer_store(self._panels, self._memory["x"][there + at], [here + at])
                    self._zero(here, length, vectors * number(lanes))
            self._zero(here, zero, begin)
            self._zero(here, end, length)
            with T.serial(zero, rows) as row:
                column = edge + row * size["width"]
                self._zero(here, tirx.max(zero, column), tirx.min(length, column + beyond))

    def _shift(self, k: Any, axis: str) -> tuple[Any, Any]:
        """Return by how many positions an element of the kernel lies behind the window, and in which phase."""
        stride, before = self._size[f"stride_{axis}"], self._size[f"before_{axis}"]
        at = k * self._size[f"dilation_{axis}"] - before
        # Made positive first: division truncates.
        shift = self._keep(tirx.truncdiv(at + before * stride, stride) - before)
        return shift, self._keep(at - shift * stride)

    def _zero(self, row: Any, begin: Any, end: Any) -> None:
        with positions(begin, end) as at:
            T.buffer_store(self._panels, tirx.FloatImm("float32", 0.0), [row + at])

    def _multiply(self, right: Any, start: Any, stride: Any, top: Any, high: Any, wide: Any) -> None:
        """Emit the product of some rows of the kernels' matrix and a panel, into the tile's memory."""
        inner, zero, columns = self._inner, number(0), number(self._tile.columns)
        whole = ceil_divide(wide, self._tile.lanes) * number(self._tile.lanes)
        with T.serial(zero, ceil_divide(inner, STEPS)) as part:
            done = self._keep(part * number(STEPS))
            a = T.address_of(self._memory["w"][top * inner + done])
            b = T.address_of(right[start + done * stride])
            c = T.address_of(self._tiles[zero])
            steps = tirx.min(number(STEPS), inner - done)
            call(BLOCK, a, b, c, inner, stride, columns, steps, whole, part, zero, high)

    def _finish(
        self,
        rows: tuple[Any, Any, Any, Any],
        first: Any,
        wide: Any,
        runs: tuple[Any, Any],
        *,
        announced: bool = False,
    ) -> None:
        """Emit bias and epilogue of a tile's rows, into the result, or that these will be written.

        Args:
            rows: Channels in front of the group and of the image, the first row and how many.
            first: The tile's first position.
            wide: How many positions.
            runs: How long runs of positions are, and how much of them is kept.
            announced: Whether the rows are only announced.
        """
        (group, out, top, high), (run, kept) = rows, runs
        zero = number(0)
        pixels = self._size["rows"] * self._size["columns"]
        upper, lower = (self._keep(tirx.truncdiv(x, run)) for x in (first, first + wide - number(1)))
        with T.serial(zero, high) as row:
            here, channel = self._keep(row * number(self._tile.columns)), self._keep(top + row)
            bias = self._memory["bias"][group + channel]

            def apply(value: Any, at: Any, bias: Any = bias, channel: Any = group + channel) -> Any:
                return self._apply(value + bias, at, channel)

            with T.serial(zero, lower - upper + number(1)) as i:
                line = self._keep(upper + i)
                begin = self._keep(tirx.max(line * run, first))
                length = self._keep(tirx.min(line * run + kept, first + wide) - begin)
                to = self._keep((out + channel) * pixels + line * kept + begin - line * run)
                target = self._memory["y"], to
                if announced:
                    announce_run(target, length)
                else:
                    finish_run(self._tile, apply, (self._tiles, here + begin - first), target, length)
