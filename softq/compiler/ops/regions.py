"""Regions of images brought to one size, with the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import StepCall, Value
from softq.compiler.steps.tir_kernels import PREFIX
from softq.compiler.tir.kernel_function import kernel_function
from softq.compiler.tir.symbolic import multiplied

_ZERO, _ONE = tirx.IntImm("int64", 0), tirx.IntImm("int64", 1)


@dataclass(frozen=True)
class RegionsOp:
    """ONNX's RoiAlign: arguments are images [N, C, H, W], regions [R, 4] and their images, int64 [R].

    The result is [R, C, height, width]. Each element is the mean or the greatest of what is interpolated at the places
    of a grid; in the latter case it is the greatest share of a neighbour that counts.

    Attributes:
        greatest: Whether the greatest is taken.
        centred: Whether the middle of the first element is at 0.5.
        grid: Places along each axis of an element; 0 for as many as the element covers.
        scale: What the regions' coordinates are multiplied with.
    """

    greatest: bool
    centred: bool
    grid: int
    scale: float

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        builder, (x, regions, images) = lowering.builder, (lowering.value(a) for a in arguments)
        out = builder.new(result)
        form = f"{self.scale.hex()}_{self.grid}".replace(".", "_").replace("-", "m").replace("+", "")
        symbol = f"{PREFIX}regions_{x.dtype}_{form}" + "_greatest" * self.greatest + "_centred" * self.centred
        kernel = builder.tir.add(symbol, lambda: _regions_kernel(symbol, x.dtype, self))
        scalars = [x.dims[0], *x.dims[1:], *out.dims[2:]]
        builder.append(StepCall(kernel, [x, regions, images, out], scalars, multiplied(out.dims[:2]), out.elements))
        return out


def _regions_kernel(symbol: str, dtype: str, op: RegionsOp) -> tirx.PrimFunc:
    """Return `symbol(x, regions, images, out, count, channels, height, width, rows, columns, begin, end)`.

    A work item is a channel of a region.
    """
    pointers = {"x": dtype, "regions": dtype, "images": "int64", "out": dtype}
    names = ("count", "channels", "height", "width", "rows", "columns")
    given = ("x", "regions", "images")
    with kernel_function(symbol, pointers, names, unaligned=given) as made:
        x, regions, images, out = made.memory.values()
        count, channels, height, width, rows, columns, begin, end = made.sizes.values()
        state = T.alloc_buffer((2,), dtype, scope="local")

        def f(value: Any) -> Any:
            return tirx.Cast(dtype, value) if not isinstance(value, float) else tirx.const(value, dtype)

        shift = f(0.5 if op.centred else 0.0)
        with T.serial(begin, end) as item:
            region, channel = tirx.floordiv(item, channels), tirx.floormod(item, channels)
            # A position outside reads no memory that is not the images'.
            image = tirx.max(tirx.min(images[region], count - 1), _ZERO)
            first = (image * channels + channel) * height * width
            edges = [regions[region * 4 + i] * f(op.scale) - shift for i in range(4)]
            axes: list[tuple[Any, Any, Any, Any]] = []
            for low, high, parts, length in ((edges[1], edges[3], rows, height), (edges[0], edges[2], columns, width)):
                extent = high - low if op.centred else tirx.max(high - low, f(1.0))
                places = tirx.IntImm("int64", op.grid)
                if op.grid == 0:
                    places = tirx.Cast("int64", tirx.ceil(extent / f(parts)))
                axes.append((low, extent / f(parts), places, length))
            with T.serial(_ZERO, rows) as row, T.serial(_ZERO, columns) as column:
                T.buffer_store(state, f(0.0), [_ZERO])
                T.buffer_store(state, f(0.0), [_ONE])
                with T.serial(_ZERO, axes[0][2]) as i, T.serial(_ZERO, axes[1][2]) as j:
                    inside: list[Any] = []
                    near: list[list[tuple[Any, Any]]] = []
                    for (low, part, places, length), at, k in zip(axes, (row, column), (i, j), strict=True):
                        place = low + f(at) * part + (f(k) + f(0.5)) * part / f(places)
                        inside += [place >= f(-1.0), place <= f(length)]
                        # Kept within the image before it becomes a position: what is outside gives 0 below.
                        place = tirx.max(tirx.min(place, f(length - 1)), f(0.0))
                        below = tirx.Cast("int64", place)
                        share = place - f(below)
                        near.append([(below, f(1.0) - share), (tirx.min(below + 1, length - 1), share)])
                    parts = [
                        x[first + y * width + z] * (a * b)
                        for y, a in near[0]
                        for z, b in near[1]
                    ]  # fmt: skip
                    value = parts[0]
                    for part in parts[1:]:
                        value = tirx.max(value, part) if op.greatest else value + part
                    value = tirx.Select(tirx.all(*inside), value, f(0.0))
                    if op.greatest:
                        value = tirx.Select(state[_ONE] == f(0.0), value, tirx.max(state[_ZERO], value))
                        T.buffer_store(state, value, [_ZERO])
                        T.buffer_store(state, f(1.0), [_ONE])
                    else:
                        T.buffer_store(state, state[_ZERO] + value, [_ZERO])
                value = state[_ZERO]
                if not op.greatest:
                    value = value / f(tirx.max(axes[0][2] * axes[1][2], _ONE))
                T.buffer_store(out, value, [(item * rows + row) * columns + column])
    return made.function
