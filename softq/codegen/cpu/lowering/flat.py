"""The step of a convolution of windows next to each other on a processor."""

from __future__ import annotations

from softq.artifact.program import Size
from softq.codegen.cpu.flat import SIZES, flat_kernel, flat_symbol, scratch_bytes, with_blocks
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.ops.linear import ConvolutionOp
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.tir.symbolic import ceiling, multiplied

_CHANNELS = 4
"""Channels of an image that are worth sums which wait in memory."""


def is_flat(operator: ConvolutionOp, inner: Size) -> bool:
    """Say whether it is one for images of so many channels."""
    few = isinstance(inner, int) and inner < _CHANNELS
    return operator.groups == 1 and operator.strides == (1, 1) and not few


def lower_flat(
    kernels: CpuKernels, builder: Builder, operator: ConvolutionOp, given: tuple[Value, Value, Value, Value]
) -> None:
    """Append the step; given are images, kernels, bias and the result, as `lower_convolution` has them."""
    x, w, _, out = given
    tile, (count, inner, *kernel) = kernels.tile, w.dims
    numbers = (inner, count, *x.dims[2:], *out.dims[2:], *kernel, *operator.dilations, *operator.before)
    sizes = with_blocks(dict(zip(SIZES, numbers, strict=False)), tile)
    columns, dilation = kernel[-1], operator.dilations[-1]
    assert isinstance(columns, int)
    symbol = flat_symbol(columns, dilation)
    kernels.tir.add(symbol, lambda: flat_kernel(tile, columns, dilation))
    blocks = [ceiling(sizes[a], sizes[b]) for a, b in (("rows", "block_rows"), ("columns", "block_columns"))]
    items = multiplied([x.dims[0], *blocks, ceiling(count, sizes["most"])])
    memory = builder.scratch(scratch_bytes(sizes, tile))
    cost = kernels.cost(multiplied([out.elements, inner, *kernel]))
    builder.append(StepCall(symbol, [*given, memory], [*sizes.values()], items, cost))
