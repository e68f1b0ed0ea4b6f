"""The step of a convolution of groups of few channels."""

from __future__ import annotations

from typing import Any

from softq.codegen.cpu.convolution import SIZES, Shape, convolution_kernel, convolution_tile, scratch_bytes
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.ops.linear import ConvolutionOp
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.tir.symbolic import computed, multiplied


def lower_convolution(
    kernels: CpuKernels, builder: Builder, operator: ConvolutionOp, given: tuple[Value, Value, Value], result: Any
) -> Value:
    """Append the step and return the result, of a type of Relax.

    Args:
        kernels: What gives the kernel.
        builder: What gathers the steps.
        operator: The convolution.
        given: Images [batch, C, H, W], kernels [M, C / groups, h, w], and a bias [M], all float32.
        result: The type of the result [batch, M, rows, columns].
    """
    x, w, bias = given
    out, tile = builder.new(result), convolution_tile(kernels.machine)
    count, inner, *kernel = w.dims
    outer = computed("floordiv", count, operator.groups)
    lengths = (operator.groups, inner, outer, *x.dims[2:], *out.dims[2:], *kernel)
    numbers = (*lengths, *operator.strides, *operator.dilations, *operator.before)
    sizes = dict(zip(SIZES, numbers, strict=True))
    memory = builder.scratch(scratch_bytes(sizes, tile))
    cost = kernels.cost(multiplied([out.elements, inner, *kernel]))
    items = multiplied([x.dims[0], operator.groups])
    assert isinstance(kernel[-1], int)
    shape = Shape.of(operator.strides[-1], kernel[-1])
    symbol = kernels.tir.add(shape.symbol, lambda: convolution_kernel(tile, shape))
    builder.append(StepCall(symbol, [x, w, bias, out, memory], [*sizes.values()], items, cost))
    return out
