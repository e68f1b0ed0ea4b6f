# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""The steps of a product of matrices on a processor: packing what is packed at run time, and the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softq.artifact.program import Size
from softq.codegen.cpu.attention.lowering import packed_integers
from softq.codegen.cpu.gemm import integer_matmul, matmul
from softq.compiler.fusion.epilogue import Epilogue
from softq.compiler.lowering.builder import Array, Assembly, Value
from softq.compiler.tir.symbolic import ceiling, multiplied


@dataclass(frozen=True)
class Weight:
    """A right operand that is known when the model is built, and the same for all products.

    Attributes:
        name: What stands for equal arrays.
        array: The matrix.
    """

    name: object
    array: Array


@dataclass(frozen=True)
class Factors:
    """What is multiplied.

    Attributes:
        left: [batch..., M, K] or [M, K].
        right: [K, N] or [batch..., K, N].
        transposed: Whether the right one is given as [N, K] or [batch..., N, K].
    """

    left: Value
    right: Value | Weight
    transposed: bool

    @property
    def lead(self) -> tuple[Size, ...]:
        """The axes over which products are numbered."""
        return (self.left if isinstance(self.right, Weight) else self.right).dims[:-2]

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        """M, K and N."""
        given = self.right.array.shape if isinstance(self.right, Weight) else self.right.dims
        return self.left.dims[-2], self.left.dims[-1], given[-2 if self.transposed else -1]

    @property
    def step(self) -> Size:
        """How many rows lie between the left operands of two products: 0 if all have the same."""
        return self.left.dims[-2] if len(self.left.dims) > 2 else 0


def multiply(
    out: Assembly, given: Factors, result: Any, epilogue: Epilogue | None = None, others: Sequence[Value] = ()
) -> Value:
    """Append the steps of a product of float32 and return the result, of a type of Relax."""
    kernels = out.kernels
    (rows, inner, columns), lead, b = given.sizes, multiplied(given.lead), given.right
    if isinstance(b, Weight):
        panels = _packed_weight(out, b, given.transposed)
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


def _packed_weight(out: Assembly, weight: Weight, transposed: bool) -> Value:
    identity = ("panels", weight.name, transposed)
    if identity in out.weight_at:
        at = out.weight_at[identity]
        return Value(tuple(out.weights[at].shape), "float32", "weight", at)
    return out.weight(identity, matmul.packed(np.asarray(weight.array, np.float32), out.kernels.tile, transposed))


def multiply_integers(out: Assembly, given: Factors, zeros: list[Value], result: Any) -> Value:
    """Append the steps of a product of 8-bit integers, less their zero points, and return the result."""
    kernels = out.kernels
    (rows, inner, columns), b = given.sizes, given.right
    if isinstance(b, Weight):
        panels, sums = integer_matmul.packed(b.array, kernels.block_tile, kernels.dot, given.transposed)
        right = [out.weight((part, b.name, given.transposed), x) for part, x in (("dots", panels), ("sums", sums))]
        right_type = str(b.array.dtype)
    else:
        right_type, heads = b.dtype, multiplied(given.lead)
        strides = (1, b.dims[-1], multiplied(b.dims[-2:]), 0)
        right = packed_integers(out, b, (heads, columns, inner), strides, given.transposed)
    product, lead = out.new(result), multiplied(given.lead)
    blocks = ceiling(rows, integer_matmul.ROWS)
    items = multiplied([lead, blocks, kernels.panels(columns, kernels.block_tile)])
    memory = out.scratch(integer_matmul.scratch_bytes(inner, kernels.dot))
    kernel = kernels.integer_matmul(given.left.dtype, right_type)
    cost = kernels.cost(multiplied([lead, rows, inner, columns]))
    tensors = [given.left, *right, *zeros, product, memory]
    out.step(kernel, tensors, [rows, inner, columns, given.step], items, cost)
    return product
