"""The steps of convolutions of 8-bit integers on a processor: images with interleaved channels, and the sums."""

from __future__ import annotations

from typing import Any

from softq.codegen.cpu.convolutions import integers, interleaving
from softq.codegen.cpu.convolutions.spans import windows_span
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.ops.linear import IntegerConvolution
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.tir.symbolic import ceiling, computed, multiplied


def lower_integer_convolution(kernels: CpuKernels, builder: Builder, given: IntegerConvolution, result: Any) -> Value:
    """Append the steps and return the result, of a type of Relax."""
    operator, x, w, out = given.operator, given.x, given.kernel, builder.new(result)
    tile, machine, groups, dot = kernels.block_tile, kernels.machine, operator.groups, kernels.dot
    packed, sums = integers.pack_kernels(w.array, dot)
    weights = [
        builder.weight((part, "convolution", w.name, w.array.shape), array)
        for part, array in (("dots", packed), ("sums", sums))
    ]
    count, inner, *kernel = w.array.shape
    outer, steps = count // groups, packed[0].size // dot.count
    lengths = (*out.dims[2:], *kernel, *operator.strides, *operator.dilations)
    sizes = dict(zip(integers.SIZES[6:-1], lengths, strict=True))
    spans = [windows_span(sizes, axis) for axis in ("rows", "columns")]
    numbers = (inner, packed.shape[1], *x.dims[2:], *spans, *operator.before)
    of_image, matrices = dict(zip(interleaving.IMAGE_SIZES, numbers, strict=True)), multiplied([x.dims[0], groups])
    elements = interleaving.image_elements(matrices, of_image, tile, dot)
    image = builder.allocated((elements,), dot.right)
    interleave = kernels.tir.add(
        interleaving.interleave_symbol(dot, x.dtype), lambda: interleaving.interleave_kernel(tile, dot, x.dtype)
    )
    items = multiplied([matrices, packed.shape[1]])
    builder.append(StepCall(interleave, [x, given.zero, image], [*of_image.values()], items, x.elements))
    kernels.tir.add(integers.block_symbol(dot), lambda: integers.block_kernel(machine, dot))
    left, stride = str(w.array.dtype), operator.strides[-1]
    symbol = kernels.tir.add(
        integers.convolution_symbol(dot, left, x.dtype, stride),
        lambda: integers.convolution_kernel(machine, dot, left, x.dtype, stride),
    )
    most, positions = min(outer, integers.CHANNELS), multiplied(out.dims[2:])
    scalars = [groups, inner, outer, packed.shape[1], *spans, *lengths, most]
    items = multiplied([matrices, ceiling(positions, tile.columns), ceiling(outer, most)])
    cost = kernels.cost(multiplied([out.elements, packed[0].size]))
    memory = builder.scratch(integers.scratch_bytes(steps, tile))
    tensors = [image, *weights, given.kernel_zeros, given.zero, out, memory]
    terms = multiplied([out.elements, *w.array.shape[1:]])
    builder.append(StepCall(symbol, tensors, scalars, items, computed("max", cost, 1), multiply_adds=terms))
    return out
