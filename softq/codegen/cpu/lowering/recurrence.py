"""The steps of a recurrence on a processor: packing of its weights, and one for all the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softq.artifact.program import Size
from softq.codegen.cpu.gemm import matmul
from softq.codegen.cpu.gemm.tiles import Tile
from softq.codegen.cpu.kernels import CpuKernels
from softq.codegen.cpu.recurrence import items, recurrence_kernel, scratch_bytes
from softq.compiler.ops.recurrence import RecurrenceOp
from softq.compiler.steps.builder import Builder, StepCall, Value, tensor_types
from softq.compiler.steps.product import Weight
from softq.compiler.steps.tir_kernels import PREFIX
from softq.compiler.tir.symbolic import ceiling, multiplied


def lower_recurrence(
    kernels: CpuKernels,
    builder: Builder,
    op: RecurrenceOp,
    x: Value,
    weights: Sequence[Value | Weight],
    others: Sequence[Value],
    result: object,
) -> tuple[Value, ...]:
    """Append the steps and return the results, of types of Relax.

    Args:
        kernels: What gives the kernels.
        builder: What gathers the steps.
        op: The recurrence.
        x: Products of the inputs.
        weights: Those of the recurrence, [directions, gates x hidden, hidden].
        others: The optional arguments that are given.
        result: The type of the result.
    """
    outputs = [builder.new(ty) for ty in tensor_types(result)]
    steps, directions, batch, hidden = outputs[0].dims
    rows = min(kernels.block_tile.rows, batch) if isinstance(batch, int) else kernels.block_tile.rows
    tile = Tile(max(rows, 1), kernels.block_tile.vectors, kernels.block_tile.lanes)
    panels = [_pack(kernels, builder, weight, directions, tile) for weight in weights]
    symbol = kernels.tir.add(
        f"{PREFIX}{op.symbol}_{tile.rows}", lambda: recurrence_kernel(f"{PREFIX}{op.symbol}_{tile.rows}", op, tile)
    )
    memory = builder.scratch(scratch_bytes(op, hidden, tile))
    terms = multiplied([steps, directions, batch, op.gates, hidden, hidden])
    tensors = [x, *panels, *others, *outputs, memory]
    numbers: list[Size] = [steps, batch, hidden]
    cost = kernels.cost(terms)
    builder.append(StepCall(symbol, tensors, numbers, items(op, batch, tile), cost, multiply_adds=terms))
    return tuple(outputs)


def _pack(kernels: CpuKernels, builder: Builder, weight: Value | Weight, directions: Size, tile: Tile) -> Value:
    if isinstance(weight, Weight):
        identity = ("recurrence", weight.name, tile.columns)
        if identity in builder.weight_at:
            at = builder.weight_at[identity]
            return Value(tuple(builder.weights[at].shape), "float32", "weight", at)
        matrices = [np.asarray(matrix, np.float32) for matrix in weight.array]
        return builder.weight(identity, np.stack([matmul.pack_weight(m, tile, transposed=True) for m in matrices]))
    columns, inner = weight.dims[1:]
    count = ceiling(columns, tile.columns)
    panels = builder.allocated((directions, count, inner, tile.columns), "float32")
    packing = kernels.pack(matmul.PACK_BLOCK, kernels.block_tile, transposed=True)
    strides = [1, inner, multiplied([columns, inner]), 0]
    items_ = multiplied([directions, count])
    builder.append(StepCall(packing, [weight, panels], [inner, columns, *strides], items_, weight.elements))
    return panels
