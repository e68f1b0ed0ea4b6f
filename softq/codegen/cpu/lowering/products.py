"""The steps of products of matrices on a processor: packing at run time, and the product."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from softq.artifact.program import Size
from softq.codegen.cpu.gemm import dot_runs, integer_matmul, matmul, packed_bits
from softq.codegen.cpu.gemm.dot_prepack import pack_dots_kernel
from softq.codegen.cpu.gemm.dot_product import WORDS
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.ops.linear import PackedMatMulOp
from softq.compiler.steps.builder import Builder, StepCall, Value
from softq.compiler.steps.product import Product, Weight
from softq.compiler.tir.symbolic import ceiling, computed, multiplied


def lower_matmul(kernels: CpuKernels, out: Builder, given: Product, result: Any) -> Value:
    """Append the steps of a product of float32 and return the result, of a type of Relax."""
    (rows, inner, columns), lead, b, tile = given.sizes, multiplied(given.lead), given.right, kernels.tile
    count = ceiling(columns, tile.columns)
    if isinstance(b, Weight):
        panels = _pack_weight(kernels, out, b, given.transposed)
    else:
        panels = out.allocated((*given.lead, count, inner, tile.columns), "float32")
        packing = kernels.pack(matmul.PACK, tile, given.transposed)
        out.append(StepCall(packing, [b, panels], [inner, columns], multiplied([lead, count]), b.elements))
    product = out.new(result)
    items = multiplied([lead, ceiling(rows, matmul.ROWS), count])
    terms = multiplied([lead, rows, inner, columns])
    cost = kernels.cost(terms)
    parts = matmul.is_long(inner)
    name = matmul.MATMUL + "_parts" * parts
    symbol = name if given.epilogue is None else f"{name}_{given.epilogue.suffix}"
    kernel = kernels.tir.add(symbol, lambda: matmul.matmul_kernel(tile, symbol, given.epilogue, parts=parts))
    tensors = [given.left, panels, product, *given.others]
    out.append(StepCall(kernel, tensors, [rows, inner, columns, given.step], items, cost, multiply_adds=terms))
    return product


def _pack_weight(kernels: CpuKernels, out: Builder, weight: Weight, transposed: bool) -> Value:
    identity = ("panels", weight.name, transposed)
    if identity in out.weight_at:
        at = out.weight_at[identity]
        return Value(tuple(out.weights[at].shape), "float32", "weight", at)
    return out.weight(identity, matmul.pack_weight(np.asarray(weight.array, np.float32), kernels.tile, transposed))


def lower_packed_matmul(
    kernels: CpuKernels, out: Builder, op: PackedMatMulOp, given: tuple[Value, Sequence[Weight]], result: Any
) -> Value:
    """Append the step of a product with weights of 4 bits; given are the left side, codes, scales, zero points."""
    left, weights = given
    tile, product = kernels.block_tile, out.new(result)
    panels = [
        out.weight(("packed", w.name, tile.columns), packed_bits.pack_columns(np.asarray(w.array), tile))
        for w in weights
    ]
    (rows, inner), columns = left.dims, product.dims[-1]
    count, half, _ = panels[0].dims
    memory = out.scratch(multiplied([half, 2 * tile.columns * 4]))
    symbol = kernels.tir.add(packed_bits.packed_symbol(op.block), lambda: packed_bits.packed_kernel(tile, op.block))
    cost = kernels.cost(multiplied([computed("add", rows, 4), inner, columns]))
    terms, tensors = multiplied([rows, inner, columns]), [left, *panels, product, memory]
    out.append(StepCall(symbol, tensors, [rows, inner, columns], count, cost, multiply_adds=terms))
    return product


def lower_integer_matmul(kernels: CpuKernels, out: Builder, given: Product, result: Any) -> Value:
    """Append the steps of a product of 8-bit integers, less their zero points, and return the result."""
    if kernels.dot.runs:
        return _lower_runs(kernels, out, given, result)
    assert given.epilogue is None
    if given.left.dtype == WORDS.left:
        return _lower_words(kernels, out, given, result)
    (rows, inner, columns), tile, dot = given.sizes, kernels.block_tile, kernels.dot
    right, right_type = _right_panels(kernels, out, given)
    product, lead = out.new(result), multiplied(given.lead)
    items = multiplied([lead, ceiling(rows, integer_matmul.ROWS), ceiling(columns, tile.columns)])
    memory = out.scratch(integer_matmul.scratch_bytes(inner, dot))
    left_type = given.left.dtype
    kernels.sums()
    kernels.left_rows(left_type)
    kernel = kernels.tir.add(
        integer_matmul.matmul_symbol(left_type, right_type),
        lambda: integer_matmul.integer_matmul_kernel(tile, dot, left_type, right_type),
    )
    terms = multiplied([lead, rows, inner, columns])
    cost = kernels.cost(terms)
    tensors = [given.left, *right, *given.zeros, product, memory]
    out.append(StepCall(kernel, tensors, [rows, inner, columns, given.step], items, cost, multiply_adds=terms))
    return product


def _right_panels(kernels: CpuKernels, out: Builder, given: Product) -> tuple[list[Value], str]:
    """Return the panels of the right operand and the sums of their columns, and the type that it is given in."""
    (_, inner, columns), b = given.sizes, given.right
    if isinstance(b, Weight):
        panels, sums = integer_matmul.pack_weight(b.array, kernels.block_tile, kernels.dot, given.transposed)
        parts = (("dots", panels), ("sums", sums))
        return [out.weight((part, b.name, given.transposed), x) for part, x in parts], str(b.array.dtype)
    strides = (1, b.dims[-1], multiplied(b.dims[-2:]), 0)
    sizes = (multiplied(given.lead), columns, inner)
    return pack_integers(kernels, out, b, sizes, strides, given.transposed), b.dtype


def _lower_runs(kernels: CpuKernels, out: Builder, given: Product, result: Any) -> Value:
    """Append the steps of a product of 8-bit integers in C, and of what is done to its sums, and return the result."""
    (rows, inner, columns), lead, dot = given.sizes, multiplied(given.lead), kernels.dot
    right, right_type = _right_panels(kernels, out, given)
    left_type = given.left.dtype
    offsets = dot.left_offset(left_type), dot.right_offset(right_type)
    zeros = [_may_be_set(out, zero, offset) for zero, offset in zip(given.zeros, offsets, strict=True)]
    # Rows are read to the end of their last group.
    in_place = left_type == dot.left and not zeros[1] and isinstance(inner, int) and inner % dot.count == 0
    product = out.new(result)
    kernel = dot_runs.RunsMatmul(
        dot, kernels.block_tile, left_type, right_type, in_place, (zeros[0], zeros[1]), product.dtype, given.epilogue
    )
    tensors = [given.left, *(right if zeros[0] else right[:1])]
    tensors += [zero for zero, needed in zip(given.zeros, zeros, strict=True) if needed]
    tensors += [product, *given.others]
    if not in_place:
        kernels.left_rows(left_type)
        tensors.append(out.scratch(multiplied([dot_runs.ROWS, ceiling(inner, dot.count), dot.count])))
    symbol = kernels.tir.add(kernel.symbol, kernel.function)
    items, terms = multiplied([lead, ceiling(rows, dot_runs.ROWS)]), multiplied([lead, rows, inner, columns])
    numbers = [rows, inner, columns, given.step]
    out.append(StepCall(symbol, tensors, numbers, items, kernels.cost(terms), multiply_adds=terms))
    return product


def _may_be_set(out: Builder, zero: Value, offset: int) -> bool:
    """Say whether a zero point may be other than 0 behind an offset."""
    return zero.place != "weight" or int(out.weights[zero.at].item()) + offset != 0


def _lower_words(kernels: CpuKernels, out: Builder, given: Product, result: Any) -> Value:
    """Append the steps of a product of int16 and bytes, less their zero point, and return the result, float32."""
    (rows, inner, columns), b, tile, lead = given.sizes, given.right, kernels.block_tile, multiplied(given.lead)
    zero_point = int(out.weights[given.zeros[1].at].item())
    if isinstance(b, Weight):
        panels, _ = integer_matmul.pack_weight(b.array.astype(np.int16) - zero_point, tile, WORDS, given.transposed)
        right = out.weight(("words", b.name, given.transposed), panels)
    else:
        strides = (1, b.dims[-1], multiplied(b.dims[-2:]), 0)
        sizes = (multiplied(given.lead), columns, inner)
        right, _ = pack_integers(kernels, out, b, sizes, strides, given.transposed, zero_point)
    product, symbol = out.new(result), integer_matmul.matmul_symbol(WORDS.left, "words")
    kernels.left_rows(WORDS.left, WORDS)
    kernel = kernels.tir.add(symbol, lambda: integer_matmul.words_matmul_kernel(tile, WORDS, kernels.parts(), symbol))
    items = multiplied([lead, ceiling(rows, integer_matmul.ROWS), ceiling(columns, tile.columns)])
    memory = out.scratch(integer_matmul.scratch_bytes(inner, WORDS))
    terms = multiplied([lead, rows, inner, columns])
    cost = kernels.cost(terms)
    tensors = [given.left, right, product, memory]
    out.append(StepCall(kernel, tensors, [rows, inner, columns, given.step], items, cost, multiply_adds=terms))
    return product


def pack_integers(
    kernels: CpuKernels,
    out: Builder,
    given: Value,
    sizes: tuple[Size, Size, Size],
    strides: tuple[Size, Size, Size, Size],
    transposed: bool,
    zero_point: int | None = None,
) -> list[Value]:
    """Append the step that packs matrices of 8-bit integers; return the panels, and the sums of their columns.

    Args:
        kernels: What gives the kernels.
        out: The program.
        given: What is packed.
        sizes: Matrices, columns of all panels, and rows of a panel.
        strides: Heads, and how far apart are rows, matrices of different numbers // heads, and of % heads.
        transposed: Whether rows of a panel are columns of the matrix.
        zero_point: Is taken off if the product is one of words; None for one of bytes, whose sums are of use.
    """
    matrices, columns, rows = sizes
    tile, dot = kernels.block_tile, kernels.dot if zero_point is None else WORDS
    count, groups = ceiling(columns, tile.columns), ceiling(rows, dot.count)
    panels = out.allocated((matrices, count, groups, tile.columns, dot.count), dot.right)
    sums = out.allocated((matrices, count, tile.columns), "int32")
    symbol = integer_matmul.pack_symbol(dot, given.dtype, transposed, zero_point)
    less: dict[str, Any] = {} if zero_point is None else {"factor": 0, "zero_point": zero_point}
    options: dict[str, Any] = {"transposed": transposed, "given": given.dtype}
    if dot.runs:
        made = partial(dot_runs.pack_runs_kernel, tile, dot, symbol, **options)
    else:
        made = partial(pack_dots_kernel, kernels.machine, dot, symbol, **options, **less)
    kernel = kernels.tir.add(symbol, made)
    items = multiplied([matrices, count])
    out.append(StepCall(kernel, [given, panels, sums], [rows, columns, *strides], items, given.elements))
    return [panels, sums]
