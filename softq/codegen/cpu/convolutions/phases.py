"""Images split into phases: the elements of each remainder of row and column by the strides, one plane for each pair.

Windows that are a stride apart read neighbours of a phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import Tile, ceil_divide, number, positions, vector
from softq.codegen.cpu.rows.tir import shuffle
from softq.compiler.tir.kernel_function import kernel_function

TAKEN = 4
"""The greatest stride whose columns are taken out of vectors."""

SIZES = (
    "height", "width", "phase_rows", "phase_columns", "rows", "columns", "stride_rows", "stride_columns", "before_rows",
    "before_columns",
)  # fmt: skip
"""The kernel's scalars: lengths of the images; how many phases, and their lengths; strides; zeros in front."""


def phases_symbol(stride: int) -> str:
    """Return the name of the kernel for a stride of columns."""
    return f"softq_phases_{stride}"


def phases_kernel(tile: Tile, stride: int) -> tirx.PrimFunc:
    """Return `softq_phases_STRIDE(x, y, SIZES..., begin, end)` for columns so far apart; a work item is a plane.

    `x` is [planes, height, width], `y` [planes, phase_rows, phase_columns, rows, columns], with zeros where a phase has
    no element.
    """
    with kernel_function(phases_symbol(stride), {"x": "float32", "y": "float32"}, SIZES) as made:
        size, (x, y), zero, step = made.sizes, made.memory.values(), number(0), number(stride)
        kept = T.alloc_buffer((8,), "int64", scope="local")

        def keep(at: int, value: Any) -> Any:
            T.buffer_store(kept, value, [number(at)])
            return kept[number(at)]

        def clear(begin: Any, end: Any) -> None:
            with positions(begin, end) as at:
                T.buffer_store(y, tirx.FloatImm("float32", 0.0), [at])

        with (
            T.serial(size["begin"], size["end"]) as plane,
            T.serial(zero, size["phase_rows"]) as a,
            T.serial(zero, size["phase_columns"]) as b,
            T.serial(zero, size["rows"]) as row,
        ):
            line = keep(0, row * size["stride_rows"] + a - size["before_rows"])
            phase = (plane * size["phase_rows"] + a) * size["phase_columns"] + b
            out = keep(1, (phase * size["rows"] + row) * size["columns"])
            inside = tirx.And(line >= zero, line < size["height"])
            first = keep(2, ceil_divide(tirx.max(zero, size["before_columns"] - b), step))
            behind = ceil_divide(tirx.max(zero, size["width"] + size["before_columns"] - b), step)
            last = keep(3, tirx.Select(inside, tirx.max(first, tirx.min(size["columns"], behind)), first))
            clear(out, out + tirx.min(first, size["columns"]))
            there = keep(4, (plane * size["height"] + line) * size["width"] + b - size["before_columns"])
            copy_columns(tile, stride, (x, there), (y, out), (first, last), lambda value: keep(5, value))
            clear(out + last, out + size["columns"])
    return made.function


def copy_columns(
    tile: Tile,
    stride: int,
    source: tuple[Any, Any],
    target: tuple[Any, Any],
    columns: tuple[Any, Any],
    keep: Callable[[Any], Any],
) -> None:
    """Emit the copy of every `stride`th element of a row, next to each other.

    Args:
        tile: Whose lanes vectors have.
        stride: How far the elements are apart.
        source: A buffer, and where its column 0 would be.
        target: The same of where they go.
        columns: The first column and the end.
        keep: Stores a number in a place of its own, and returns what reads it.
    """
    (read, there), (written, out), (start, end) = source, target, columns
    zero, lanes = number(0), tile.lanes
    done = keep(start)
    if lanes > 1 and stride <= TAKEN:
        # What is read between the columns exists as long as another column follows.
        vectors = tirx.max(zero, end - start - number(int(stride > 1)))
        with T.serial(zero, tirx.truncdiv(vectors, number(lanes))):
            at = there + done * number(stride)
            loads = [read[vector(at + number(i * lanes), lanes)] for i in range(stride)]
            every = loads[0] if stride == 1 else shuffle(loads, range(0, lanes * stride, stride))
            T.buffer_store(written, every, [vector(out + done, lanes)])
            keep(done + number(lanes))
    with T.serial(zero, end - done) as rest:
        column = done + rest
        T.buffer_store(written, read[there + column * number(stride)], [out + column])
