"""What TVM's functions around an attention do: to each element at its place, or to where heads and rows stand."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi.structural import structural_walk

from softq.compiler.tir.symbolic import equal, plain


def same_rows(a: Any, b: Any) -> bool:
    """Say whether rows of two types of Relax have as many elements; a number without axes is in no row."""
    x, y = list(a.shape.values), list(b.shape.values)
    return bool(x and y) and equal(x[-1], y[-1])


def blocks_of(function: Any) -> list[Any] | None:
    """Return the blocks of a function if each is one statement without reductions, with their bodies."""
    found: list[Any] = []
    structural_walk(function.body, (s_tir.SBlock, found.append))
    blocks = [block for block in found if block.name_hint != "root"]
    for block in blocks:
        kinds = [int(v.iter_type) for v in block.iter_vars]
        if any(kind != tirx.IterVar.DataPar for kind in kinds) or not isinstance(block.body, tirx.BufferStore):
            return None
    return blocks


def elementwise_in(function: Any, position: int, to_bsnh: bool = False) -> bool:
    """Say whether each element of the result depends on that element alone of a parameter.

    Of an axis of one element the parameter may have the only one: then it depends on the row's. `to_bsnh` asks it of
    a function that exchanges the heads and rows of such a result.
    """
    blocks = blocks_of(function)
    params = list(function.params)
    if not blocks:
        return False
    result = params[-1]
    if to_bsnh:
        result = _exchanged(blocks[-1], result)
        blocks = blocks[:-1]
        if result is None or (not blocks and result.same_as(params[position])):
            return result is not None
    made = [params[position]]
    for block in blocks:
        variables = [v.var for v in block.iter_vars]
        store = block.body
        loads: list[Any] = []
        structural_walk(store.value, (tvm.ir.TensorLoad, loads.append))
        reads = [load for load in loads if any(load.source.same_as(m) for m in made)]
        if not reads:
            continue
        for buffer, indices in [(load.source, load.indices) for load in reads] + [(store.buffer, store.indices)]:
            if len(indices) != len(variables) or not all(map(_stands_at, indices, variables, buffer.shape)):
                return False
        made.append(store.buffer)
    return made[-1].same_as(result) and len(made) > 1


def exchanges_heads(function: Any, widens: bool) -> bool:
    """Say whether a function gives its only parameter [batch, rows, heads, width] as [batch, heads, rows, width].

    `widens` allows it to widen numbers of 16 bits then.
    """
    blocks, result = blocks_of(function), function.params[-1]
    if blocks is not None and len(blocks) == 2 and widens:
        result = widened(blocks.pop())
    if blocks is None or len(blocks) != 1 or result is None:
        return False
    source = _exchanged(blocks[0], result)
    return source is not None and source.same_as(function.params[0])


def widened(block: Any) -> Any:
    """Return what a block gives to its result at the same places as float32, if that is of 16 bits, or None."""
    store = block.body
    load = store.value.value if isinstance(store.value, tirx.Cast) else None
    if not isinstance(load, tvm.ir.TensorLoad) or str(load.ty.dtype) != "float16" or str(store.value.ty) != "float32":
        return None
    own = _places(block, load)
    return load.source if own and all(map(_stands_at, load.indices, own, load.source.shape)) else None


def _exchanged(block: Any, result: Any) -> Any:
    """Return what a block gives to the result with its second and third of four axes exchanged, or None."""
    load, own = block.body.value, _places(block, block.body.value)
    if len(own) != 4 or not block.body.buffer.same_as(result):
        return None
    moved = own[0], own[2], own[1], own[3]
    return load.source if all(map(_stands_at, load.indices, moved, load.source.shape)) else None


def _places(block: Any, load: Any) -> list[Any]:
    """Return the variables of a block that writes each place once, of one load of as many axes; else none."""
    own = [v.var for v in block.iter_vars]
    same = isinstance(load, tvm.ir.TensorLoad) and len(own) == len(load.indices) == len(block.body.indices)
    return own if same and all(a.same_as(b) for a, b in zip(block.body.indices, own, strict=True)) else []


def _stands_at(index: Any, variable: Any, extent: Any) -> bool:
    """Say whether an index is a variable, or that of the only element of its axis."""
    return index.same_as(variable) or (plain(extent) == 1 and plain(index) == 0)


def repeats(function: Any) -> int:
    """Return how often a function repeats each matrix of its only parameter, one copy behind another, else 1.

    The result is [..., n, r, c] and its element [..., i, j, k] is [..., 0, j, k] of the parameter.
    """
    blocks = blocks_of(function)
    params = list(function.params)
    if blocks is None or len(blocks) != 1:
        return 1
    load, own = blocks[0].body.value, _places(blocks[0], blocks[0].body.value)
    if len(own) < 3 or not load.source.same_as(params[0]):
        return 1
    for axis, (index, variable) in enumerate(zip(load.indices, own, strict=True)):
        if not (plain(index) == 0 if axis == len(own) - 3 else index.same_as(variable)):
            return 1
    group = plain(params[-1].shape[-3])
    return group if isinstance(group, int) and plain(params[0].shape[-3]) == 1 else 1
