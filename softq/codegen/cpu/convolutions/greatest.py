"""Greatest elements of windows: of the rows of a window first, column by column, then of neighbouring columns of these.

So a window of k x k elements takes 2 k comparisons, and what the comparisons of rows give is a single row, which stays
in the first cache with numbers around it that are less than everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions.emitter import Emitter
from softq.codegen.cpu.convolutions.phases import TAKEN
from softq.codegen.cpu.convolutions.spans import windows_span
from softq.codegen.cpu.gemm.tiles import ceil_divide, number, vector
from softq.codegen.cpu.rows.tir import broadcast, shuffle
from softq.compiler.ops.pooling import GreatestOp
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import computed, multiplied

SIZES = (
    "height", "width", "rows", "columns", "kernel_rows", "kernel_columns", "stride_rows", "stride_columns",
    "dilation_rows", "dilation_columns", "before_rows", "before_columns",
)  # fmt: skip
"""The kernel's scalars: lengths of the planes and of the result's; a window; how far windows and elements of a window
are apart; places in front of a plane that count for nothing."""

_UNROLLED = 3
"""Rows and columns of a window that are written one after another instead of as a loop."""

_VECTORS = 4
"""Vectors of a row that are compared together."""

_LINES = 8
"""Rows of the result that are computed together: what has just been written is slow to read in other vectors."""


@dataclass(frozen=True)
class Shape:
    """What a kernel's code depends on.

    Attributes:
        rows: Rows of a window, or 0 for a loop over any number of them.
        columns: The same of columns, which are next to each other where they are known.
        stride: How many columns windows are apart, or 0 for any number.
    """

    rows: int
    columns: int
    stride: int

    @staticmethod
    def of(operator: GreatestOp) -> Shape:
        """Return the shape for an operator."""
        rows, columns = (length if length <= _UNROLLED else 0 for length in operator.kernel)
        stride = operator.strides[1] if operator.strides[1] <= TAKEN else 0
        return Shape(rows, columns if operator.dilations[1] == 1 else 0, stride)

    @property
    def symbol(self) -> str:
        """The kernel's name."""
        return "softq_greatest_" + "_".join(str(part or "any") for part in (self.rows, self.columns, self.stride))


def scratch_bytes(sizes: dict[str, Size], lanes: int) -> Size:
    """Return the bytes that a thread needs."""
    pitch = computed("add", computed("max", windows_span(sizes, "columns"), 0), 2 * TAKEN * lanes)
    return multiplied([pitch, _LINES, 4])


def greatest_kernel(lanes: int, shape: Shape) -> tirx.PrimFunc:
    """Return the kernel.

        void symbol(const float *x, float *y, void *scratch, int64_t SIZES..., int64_t begin, int64_t end)

    `x` is [planes, height, width], `y` [planes, rows, columns]. A work item is a plane.

    Args:
        lanes: Numbers of a vector.
        shape: What the code depends on.
    """
    pointers = {"x": "float32", "y": "float32", "scratch": "uint8"}
    with kernel_function(shape.symbol, pointers, SIZES) as made:
        _Builder(lanes, shape, made).emit()
    return made.function


class _Builder(Emitter):
    def __init__(self, lanes: int, shape: Shape, made: KernelFunction) -> None:
        super().__init__(made)
        # Numbers that are further apart are not taken out of vectors.
        self._shape, self._lanes, self._taken = shape, lanes, lanes if shape.stride else 1
        self._line = self._scratch(number(0))
        self._found = {n: T.alloc_buffer((_VECTORS * n,), "float32", scope="local") for n in {1, lanes}}
        self._least = tirx.FloatImm("float32", -math.inf)

    def emit(self) -> None:
        size, zero, one, lines = self._size, number(0), number(1), number(_LINES)
        columns = size["columns"]
        span = (columns - one) * size["stride_columns"] + (size["kernel_columns"] - one) * size["dilation_columns"]
        pitch = self._keep(tirx.max(zero, span + one) + number(2 * TAKEN * self._lanes))
        with T.serial(zero, pitch * lines) as at:
            T.buffer_store(self._line, self._least, [at])
        plane = self._keep(size["rows"] * columns)
        # What of the plane is under windows.
        width = self._keep(tirx.max(zero, tirx.min(size["width"], span + one - size["before_columns"])))
        with T.serial(size["begin"], size["end"]) as item, T.serial(zero, ceil_divide(size["rows"], _LINES)) as part:
            first = self._keep(part * lines)
            high = self._keep(tirx.min(lines, size["rows"] - first))
            with T.serial(zero, high) as i:
                self._over_rows(item, first + i, self._keep(i * pitch + size["before_columns"]), width)
            with T.serial(zero, high) as i:
                to = self._keep(item * plane + (first + i) * columns)
                self._over_columns(self._keep(i * pitch), to, (item + one) * plane)

    def _over_rows(self, item: Any, row: Any, out: Any, width: Any) -> None:
        """Emit the comparison of a window's rows; one beyond an edge is replaced by the nearest in the plane."""
        size, zero, one = self._size, number(0), number(1)
        top = self._keep(row * size["stride_rows"] - size["before_rows"])
        first = self._keep(ceil_divide(tirx.max(zero, zero - top), size["dilation_rows"]))
        behind = ceil_divide(tirx.max(zero, size["height"] - top), size["dilation_rows"])
        last = self._keep(tirx.min(size["kernel_rows"], behind) - one)
        source = self._keep((item * size["height"] + top) * size["width"])
        pitch = self._keep(size["dilation_rows"] * size["width"])

        def compare(at: Any, lanes: int, vectors: int) -> None:
            def row(i: Any) -> None:
                here = source + tirx.max(first, tirx.min(last, number(i) if isinstance(i, int) else i)) * pitch + at
                for v in range(vectors):
                    self._compare(v, self._memory["x"][vector(here + number(v * lanes), lanes)], lanes)

            self._begin(vectors, lanes)
            self._each(self._shape.rows, size["kernel_rows"], row)
            for v in range(vectors):
                T.buffer_store(self._line, self._get(v, lanes), [vector(out + at + number(v * lanes), lanes)])

        with T.If(first > last):
            # No row of the window is in the plane.
            with T.Then(), T.serial(zero, width) as at:
                T.buffer_store(self._line, self._least, [out + at])
            with T.Else():
                self._over_row(compare, width)

    def _over_row(self, compare: Callable[[Any, int, int], None], width: Any) -> None:
        """Emit what gives a number of columns, lanes and vectors on, for a whole row."""
        zero, lanes = number(0), self._lanes
        done, vectors = self._keep(zero), _VECTORS
        while lanes > 1 and vectors:
            with T.serial(zero, tirx.truncdiv(width - done, number(vectors * lanes))):
                compare(done, lanes, vectors)
                self._put(done, done + number(vectors * lanes))
            vectors //= 4
        with T.If(tirx.And(done > zero, done < width)):
            # The last vector begins within the one before it.
            with T.Then():
                compare(width - number(lanes), lanes, 1)
            with T.Else(), T.serial(zero, width - done) as at:
                compare(done + at, 1, 1)

    def _over_columns(self, line: Any, to: Any, end: Any) -> None:
        """Emit the comparison of columns, into a row of the result: a plane ends at `end`."""
        size, zero, lanes, columns = self._size, number(0), self._taken, self._size["columns"]

        def compare(at: Any, lanes: int) -> None:
            here = self._keep(line + at * size["stride_columns"])

            def column(j: Any) -> None:
                self._compare(0, self._every(here, j, lanes), lanes)

            self._begin(1, lanes)
            self._each(self._shape.columns, size["kernel_columns"], column)
            T.buffer_store(self._memory["y"], self._get(0, lanes), [vector(to + at, lanes)])

        # Vectors may reach over the end of a row, before the next one is written.
        room = tirx.min(ceil_divide(columns, lanes), tirx.truncdiv(end - to, number(lanes)))
        whole = self._keep(room if lanes > 1 else columns)
        with T.serial(zero, whole) as v:
            compare(v * number(lanes), lanes)
        if lanes > 1:
            done = self._keep(whole * number(lanes))
            with T.serial(zero, tirx.max(zero, columns - done)) as rest:
                compare(done + rest, 1)

    def _every(self, start: Any, j: Any, lanes: int) -> Any:
        """Return numbers of a row, a stride apart, each `j` elements of a window behind those from `start` on."""
        step, rest = self._shape.stride if lanes > 1 else 1, 0
        ahead = j * self._size["dilation_columns"]
        if self._shape.columns:
            # Elements of one window out of the same vectors.
            whole, rest = divmod(int(j), step)
            ahead = number(whole * step)
        loads = [self._line[vector(start + ahead + number(i * lanes), lanes)] for i in range(step)]
        return loads[0] if step == 1 else shuffle(loads, range(rest, lanes * step + rest, step))

    def _begin(self, vectors: int, lanes: int) -> None:
        for v in range(vectors):
            self._set(v, broadcast(self._least, lanes), lanes)

    def _compare(self, v: int, value: Any, lanes: int) -> None:
        before = self._get(v, lanes)
        self._set(v, tirx.Select(before < value, value, before), lanes)

    def _get(self, v: int, lanes: int) -> Any:
        return self._found[lanes][vector(number(v * lanes), lanes)]

    def _set(self, v: int, value: Any, lanes: int) -> None:
        T.buffer_store(self._found[lanes], value, [vector(number(v * lanes), lanes)])

    def _each(self, constant: int, length: Any, emit: Callable[[Any], None]) -> None:
        if constant:
            for i in range(constant):
                emit(i)
        else:
            with T.serial(number(0), length) as i:
                emit(i)
