"""The steps of convolutions on a processor: phases of the images where windows are a stride apart, and the sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from softq.artifact.program import Size
from softq.codegen.cpu.convolutions import depthwise, direct, flat, greatest, panels, phases, windows
from softq.codegen.cpu.gemm.matmul import BLOCK, block_kernel
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.ops.linear import Convolution, ConvolutionOp
from softq.compiler.ops.pooling import GreatestOp
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.steps.product import Epilogue, Weight
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

_MANY = 8
"""Channels of a group in the result that fill the rows of a product's tile."""

_SMALL = 16
"""Channels of the result for which gathering windows takes about as long as multiplying them."""

_SHORT = 32
"""Elements of a window, of which the same is true."""

_THICK = 4
"""Channels of an image that are worth sums which wait in memory."""

_WIDE = 48
"""Windows in a row that fill vectors well enough."""

_PANEL = 1 << 15
"""Numbers of a block of windows that stay in a cache with the kernels' rows that they are multiplied by."""

_DIRECT = 24
"""Channels of a result for which it is not worth while to copy the windows."""

_SHARED = 192
"""Channels for which a block of few positions is gathered, so that there are blocks for more threads."""


@dataclass(frozen=True)
class _Given(Convolution):
    """A convolution whose kernels are a value."""

    kernel: Value


def lower_convolution(kernels: CpuKernels, builder: Builder, given: Convolution, result: Any) -> Value:
    """Append the steps and return the result, of a type of Relax."""
    out, weight = builder.new(result), given.kernel
    groups, (count, inner, *kernel) = given.operator.groups, _dims(weight)
    outer = computed("floordiv", count, groups)
    line, strided = out.dims[-1], given.operator.strides != (1, 1) and not _at_most(inner, _THICK - 1)
    wide = isinstance(line, int) and line >= _WIDE
    if isinstance(weight, Weight):
        lanes, short = kernels.block_tile.lanes, _at_most(multiplied([inner, *kernel]), _SHORT)
        few = short or lanes == 1 or _at_most(outer, lanes if strided else 2 * lanes - 1)
        if not few and (strided or kernel == [1, 1] or (isinstance(line, int) and not wide)):
            _panels(kernels, builder, given, weight, out)
            return out
        weight = builder.weight(("weight", weight.name), weight.array)
    given = _Given(**{**vars(given), "kernel": weight})
    if groups > 1 and isinstance(outer, int) and outer < _MANY:
        lower = _depthwise if inner == 1 and kernels.tile.lanes > 1 else _direct
    else:
        small = _at_most(outer, _SMALL) or _at_most(multiplied([inner, *kernel]), _SHORT)
        dense = groups == 1 and kernel != [1, 1]
        lower = _direct if dense and (small or wide) else _many
        if dense and given.operator.strides == (1, 1) and not _at_most(inner, _THICK - 1):
            lower = _flat
    lower(kernels, builder, given, outer, out)
    return out


def _panels(kernels: CpuKernels, builder: Builder, given: Convolution, kernel: Weight, out: Value) -> None:
    operator, x, tile = given.operator, given.x, kernels.block_tile
    count, inner, *taps = kernel.array.shape
    outer = count // operator.groups
    padded = _is_padded(operator, x, out, taps)
    lengths = (operator.groups, inner, outer, *x.dims[2:], *out.dims[2:], *taps)
    numbers = (*lengths, *operator.strides, *operator.dilations, *operator.before)
    sizes = panels.with_blocks(dict(zip(panels.SIZES, numbers, strict=False)), tile)
    symbol = _kernel(
        kernels,
        panels.panels_symbol(padded),
        given.epilogue,
        lambda symbol: panels.panels_kernel(tile, padded, symbol, given.epilogue),
    )
    packed = panels.pack_kernels(np.asarray(kernel.array, np.float32), operator.groups, tile)
    w = builder.weight(("channels", kernel.name, operator.groups), packed)
    items = [x.dims[0], operator.groups, ceiling(sizes["rows"], sizes["block"]), ceiling(outer, sizes["most"])]
    tensors = [x, w, given.bias, out, *given.others, builder.scratch(panels.scratch_bytes(sizes, tile, padded))]
    terms = multiplied([out.elements, *kernel.array.shape[1:]])
    cost = kernels.cost(terms)
    builder.append(StepCall(symbol, tensors, [*sizes.values()], multiplied(items), cost, multiply_adds=terms))


def _is_padded(operator: ConvolutionOp, x: Value, out: Value, kernel: Sequence[int]) -> bool:
    """Say whether windows may reach over an edge of the image."""
    if operator.before != (0, 0):
        return True
    lengths = zip(x.dims[2:], out.dims[2:], kernel, operator.strides, operator.dilations, strict=True)
    return kernel != [1, 1] and any(
        not (isinstance(there, int) and isinstance(n, int)) or (n - 1) * stride + (k - 1) * dilation >= there
        for there, n, k, stride, dilation in lengths
    )


def _dims(kernel: Value | Weight) -> Sequence[Size]:
    return kernel.array.shape if isinstance(kernel, Weight) else kernel.dims


def _at_most(size: Size, most: int) -> bool:
    return isinstance(size, int) and size <= most


def _direct(kernels: CpuKernels, builder: Builder, given: _Given, outer: Size, out: Value) -> None:
    operator, x, tile = given.operator, given.x, direct.convolution_tile(kernels.machine)
    _, inner, *kernel = given.kernel.dims
    lengths = (operator.groups, inner, outer, *x.dims[2:], *out.dims[2:], *kernel)
    numbers = (*lengths, *operator.strides, *operator.dilations, *operator.before)
    sizes = dict(zip(direct.SIZES, numbers, strict=False))
    sizes["block_rows"], sizes["block_columns"] = direct.block_of(sizes)
    assert isinstance(kernel[-1], int)
    shape = direct.Shape.of(operator.strides[-1], kernel[-1])
    memory = builder.scratch(direct.scratch_bytes(sizes, tile))
    symbol = _kernel(
        kernels,
        shape.symbol,
        given.epilogue,
        lambda symbol: direct.convolution_kernel(tile, shape, symbol, given.epilogue),
    )
    tensors = [x, given.kernel, given.bias, out, *given.others, memory]
    blocks = [ceiling(sizes[axis], sizes[f"block_{axis}"]) for axis in ("rows", "columns")]
    items = multiplied([x.dims[0], operator.groups, *blocks])
    _append(kernels, builder, given, StepCall(symbol, tensors, [*sizes.values()], items, 0), out)


def _flat(kernels: CpuKernels, builder: Builder, given: _Given, outer: Size, out: Value) -> None:
    operator, x, tile = given.operator, given.x, kernels.tile
    inner, *kernel = given.kernel.dims[1:]
    numbers = (inner, outer, *x.dims[2:], *out.dims[2:], *kernel, *operator.dilations, *operator.before)
    sizes = flat.with_blocks(dict(zip(flat.SIZES, numbers, strict=False)), tile)
    columns, dilation = kernel[-1], operator.dilations[-1]
    assert isinstance(columns, int)

    def make(symbol: str) -> tirx.PrimFunc:
        return flat.flat_kernel(tile, columns, dilation, symbol, given.epilogue)

    symbol = _kernel(kernels, flat.flat_symbol(columns, dilation), given.epilogue, make)
    blocks = [ceiling(sizes[a], sizes[b]) for a, b in (("rows", "block_rows"), ("columns", "block_columns"))]
    items = multiplied([x.dims[0], *blocks, ceiling(outer, sizes["most"])])
    tensors = [x, given.kernel, given.bias, out, *given.others, builder.scratch(flat.scratch_bytes(sizes, tile))]
    _append(kernels, builder, given, StepCall(symbol, tensors, [*sizes.values()], items, 0), out)


def _depthwise(kernels: CpuKernels, builder: Builder, given: _Given, outer: Size, out: Value) -> None:
    operator, x, tile = given.operator, given.x, kernels.block_tile
    lengths = (outer, x.elements, *x.dims[2:], *out.dims[2:], *given.kernel.dims[2:])
    numbers = (*lengths, *operator.strides, *operator.dilations, *operator.before, x.dims[1])
    sizes = dict(zip(depthwise.SIZES, numbers, strict=True))
    memory, stride = builder.scratch(depthwise.scratch_bytes(sizes, tile)), operator.strides[-1]

    def make(symbol: str) -> tirx.PrimFunc:
        return depthwise.depthwise_kernel(tile.lanes, stride, symbol, given.epilogue)

    symbol = _kernel(kernels, depthwise.symbol_of(stride), given.epilogue, make)
    tensors = [x, given.kernel, given.bias, out, *given.others, memory]
    items = multiplied(x.dims[:2])
    _append(kernels, builder, given, StepCall(symbol, tensors, [*sizes.values()], items, 0), out)


def lower_greatest(kernels: CpuKernels, builder: Builder, operator: GreatestOp, x: Value, result: Any) -> Value:
    """Append the step of greatest elements of windows and return the result, of a type of Relax."""
    out, lanes, shape = builder.new(result), kernels.tile.lanes, greatest.Shape.of(operator)
    windows_of = (*operator.kernel, *operator.strides, *operator.dilations, *operator.before)
    sizes = dict(zip(greatest.SIZES, (*x.dims[2:], *out.dims[2:], *windows_of), strict=True))
    symbol = kernels.tir.add(shape.symbol, lambda: greatest.greatest_kernel(lanes, shape))
    cost = kernels.cost(multiplied([out.elements, computed("add", *operator.kernel)]))
    tensors = [x, out, builder.scratch(greatest.scratch_bytes(sizes, lanes))]
    builder.append(StepCall(symbol, tensors, [*sizes.values()], multiplied(x.dims[:2]), cost))
    return out


def _many(kernels: CpuKernels, builder: Builder, given: _Given, outer: Size, out: Value) -> None:
    operator, tile = given.operator, kernels.block_tile
    x, before = _neighbours(kernels, builder, given, out)
    _, inner, *kernel = given.kernel.dims
    height, width = x.dims[-2:]
    steps = multiplied([inner, *kernel])
    positions = computed("add", multiplied([computed("sub", out.dims[2], 1), width]), out.dims[3])
    in_place = kernel == [1, 1] and len(x.dims) == 4 and isinstance(outer, int) and outer <= _DIRECT
    most_panels = (
        1 if in_place else computed("max", 1, computed("floordiv", _PANEL // tile.columns, computed("max", steps, 1)))
    )
    block = multiplied([computed("min", most_panels, ceiling(positions, tile.columns)), tile.columns])
    most = outer
    if isinstance(positions, int) and positions <= 8 * tile.columns and isinstance(outer, int):
        most = min(outer, _SHARED)
    split = (*x.dims[2:4],) if len(x.dims) == 6 else (1, 1)
    numbers = (
        operator.groups, inner, outer, *split, height, width, *out.dims[2:], *kernel, *operator.strides,
        *operator.dilations, *before, x.elements, block, most, int(in_place),
    )  # fmt: skip
    sizes = dict(zip(windows.SIZES, numbers, strict=True))
    kernels.tir.add(BLOCK, lambda: block_kernel(tile))
    symbol = _kernel(
        kernels, windows.WINDOWS, given.epilogue, lambda symbol: windows.windows_kernel(tile, symbol, given.epilogue)
    )
    memory = builder.scratch(windows.scratch_bytes(steps, multiplied(kernel), block, tile))
    tensors = [x, given.kernel, given.bias, out, *given.others, memory]
    items = multiplied([x.dims[0], operator.groups, ceiling(positions, block), ceiling(outer, most)])
    _append(kernels, builder, given, StepCall(symbol, tensors, [*sizes.values()], items, 0), out)


def _neighbours(kernels: CpuKernels, builder: Builder, given: _Given, out: Value) -> tuple[Value, tuple[Size, Size]]:
    """Return images in which neighbouring windows read neighbours, and the zeros in front of them.

    They are the given ones, or their phases, [batch, C, phases of rows, of columns, rows, columns].
    """
    operator, x = given.operator, given.x
    strides, before, kernel = operator.strides, operator.before, given.kernel.dims[2:]
    if strides == (1, 1) and not operator.beyond:
        return x, before
    split = [1 if k == 1 and not b else s for s, b, k in zip(strides, before, kernel, strict=True)]
    if operator.beyond:
        # With their zeros, so that no position has a window without a column of its own.
        spans = [
            computed("add", multiplied([computed("sub", n, 1), s]), multiplied([computed("sub", k, 1), d]) + 1)
            for n, s, k, d in zip(out.dims[2:], strides, kernel, operator.dilations, strict=True)
        ]
        inside, behind = before, (0, 0)
    else:
        spans, inside, behind = x.dims[2:], (0, 0), before
    lengths = [ceiling(span, s) for span, s in zip(spans, strides, strict=True)]
    images = builder.allocated((*x.dims[:2], *split, *lengths), "float32")
    tile, stride = kernels.block_tile, strides[1]
    symbol = kernels.tir.add(phases.phases_symbol(stride), lambda: phases.phases_kernel(tile, stride))
    scalars: list[Size] = [*x.dims[2:], *split, *lengths, *strides, *inside]
    builder.append(StepCall(symbol, [x, images], scalars, multiplied(x.dims[:2]), images.elements))
    return images, behind


def _kernel(kernels: CpuKernels, name: str, epilogue: Epilogue | None, make: Callable[[str], tirx.PrimFunc]) -> str:
    """Return the symbol of a kernel: of that with an equal epilogue, if there is one."""
    symbol = name if epilogue is None else f"{name}_{epilogue.suffix}"
    return kernels.tir.add(symbol, lambda: make(symbol))


def _append(kernels: CpuKernels, builder: Builder, given: _Given, step: StepCall, out: Value) -> None:
    """Append a step, with what it takes."""
    terms = multiplied([out.elements, *given.kernel.dims[1:]])
    builder.append(replace(step, cost=kernels.cost(terms), multiply_adds=terms))
