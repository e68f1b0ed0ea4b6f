"""The steps of a product of matrices on a processor: packing what is packed at run time, and the product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softq.artifact.program import Size
from softq.codegen.cpu.gemm import integer_matmul, matmul
from softq.codegen.cpu.kernels import CpuKernels
from softq.compiler.steps.builder import Builder, Value
from softq.compiler.steps.epilogue import Epilogue
from softq.compiler.steps.operands import Operands, Weight
from softq.compiler.tir.symbolic import ceiling, multiplied


def lower_matmul(
    kernels: CpuKernels,
    out: Builder,
    given: Operands,
    result: Any,
    epilogue: Epilogue | None = None,
    others: Sequence[Value] = (),
) -> Value:
    """Append the steps of a product of float32 and return the result, of a type of Relax."""
    (rows, inner, columns), lead, b = given.sizes, multiplied(given.lead), given.right
    if isinstance(b, Weight):
        panels = _packed_weight(kernels, out, b, given.transposed)
    else:
        count = kernels.panels(columns)
        panels = out.allocated((*given.lead, count, inner, kernels.tile.columns), "float32")
        packing = kernels.pack(given.transposed)
        out.step(packing, [b, panels], [inner, columns], multiplied([lead, count]), b.elements)
    product = out.new(result)
    items = multiplied([lead, kernels.row_blocks(rows), kernels.panels(columns)])
    cost = kernels.cost(multiplied([lead, rows, inner, columns]))
    kernel = kernels.matmul(epilogue)
    out.step(kernel, [given.left, panels, product, *others], [rows, inner, columns, given.step], items, cost)
    return product


def _packed_weight(kernels: CpuKernels, out: Builder, weight: Weight, transposed: bool) -> Value:
    identity = ("panels", weight.name, transposed)
    if identity in out.weight_at:
        at = out.weight_at[identity]
        return Value(tuple(out.weights[at].shape), "float32", "weight", at)
    return out.weight(identity, matmul.packed(np.asarray(weight.array, np.float32), kernels.tile, transposed))


def lower_integer_matmul(
    kernels: CpuKernels, out: Builder, given: Operands, zeros: Sequence[Value], result: Any
) -> Value:
    """Append the steps of a product of 8-bit integers, less their zero points, and return the result."""
    (rows, inner, columns), b = given.sizes, given.right
    if isinstance(b, Weight):
        panels, sums = integer_matmul.packed(b.array, kernels.block_tile, kernels.dot, given.transposed)
        right = [out.weight((part, b.name, given.transposed), x) for part, x in (("dots", panels), ("sums", sums))]
        right_type = str(b.array.dtype)
    else:
        right_type, heads = b.dtype, multiplied(given.lead)
        strides = (1, b.dims[-1], multiplied(b.dims[-2:]), 0)
        right = pack_integers(kernels, out, b, (heads, columns, inner), strides, given.transposed)
    product, lead = out.new(result), multiplied(given.lead)
    blocks = ceiling(rows, integer_matmul.ROWS)
    items = multiplied([lead, blocks, kernels.panels(columns, kernels.block_tile)])
    memory = out.scratch(integer_matmul.scratch_bytes(inner, kernels.dot))
    kernel = kernels.integer_matmul(given.left.dtype, right_type)
    cost = kernels.cost(multiplied([lead, rows, inner, columns]))
    tensors = [given.left, *right, *zeros, product, memory]
    out.step(kernel, tensors, [rows, inner, columns, given.step], items, cost)
    return product


def pack_integers(
    kernels: CpuKernels,
    out: Builder,
    given: Value,
    sizes: tuple[Size, Size, Size],
    strides: tuple[Size, Size, Size, Size],
    transposed: bool,
) -> list[Value]:
    """Append the step that packs matrices of 8-bit integers; return the panels, and the sums of their columns.

    Args:
        kernels: What gives the kernels.
        out: The program.
        given: What is packed.
        sizes: Matrices, columns of all panels, and rows of a panel.
        strides: Heads, and how far apart are rows, matrices of different numbers // heads, and of % heads.
        transposed: Whether rows of a panel are columns of the matrix.
    """
    matrices, columns, rows = sizes
    tile, dot = kernels.block_tile, kernels.dot
    count = kernels.panels(columns, tile)
    groups = ceiling(rows, dot.count)
    panels = out.allocated((matrices, count, groups, tile.columns, dot.count), dot.right)
    sums = out.allocated((matrices, count, tile.columns), "int32")
    kernel = kernels.pack_integers(given.dtype, transposed)
    out.step(kernel, [given, panels, sums], [rows, columns, *strides], multiplied([matrices, count]), given.elements)
    return [panels, sums]
