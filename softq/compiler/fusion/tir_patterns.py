"""What TVM's functions around an attention do: to each element at its place, or to where heads and rows stand."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi.structural import structural_walk

from softq.compiler.tir.symbolic import equal, plain


def same_rows(a: Any, b: Any) -> bool:
    """Say whether rows of two types of Relax have as many elements."""
    return equal(a.shape.values[-1], b.shape.values[-1])


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
            extents = [plain(d) for d in buffer.shape]
            if len(indices) != len(variables):
                return False
            for index, variable, extent in zip(indices, variables, extents, strict=True):
                only = isinstance(extent, int) and extent == 1 and plain(index) == 0
                if not (index.same_as(variable) or only):
                    return False
        made.append(store.buffer)
    return made[-1].same_as(result) and len(made) > 1


def exchanges_heads_and_rows(function: Any, widens: bool) -> bool:
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
    own, store = [v.var for v in block.iter_vars], block.body
    load = store.value.value if isinstance(store.value, tirx.Cast) else None
    if not isinstance(load, tvm.ir.TensorLoad) or str(load.ty.dtype) != "float16" or str(store.value.ty) != "float32":
        return None
    if not len(own) == len(load.indices) == len(store.indices):
        return None
    places = zip(load.indices, store.indices, own, load.source.shape, strict=True)
    kept = all(b.same_as(v) and (a.same_as(v) or (plain(n) == 1 and plain(a) == 0)) for a, b, v, n in places)
    return load.source if kept else None


def _exchanged(block: Any, result: Any) -> Any:
    """Return what a block gives to the result with its second and third of four axes exchanged, or None."""
    store, own = block.body, [v.var for v in block.iter_vars]
    load = store.value
    if not store.buffer.same_as(result) or not isinstance(load, tvm.ir.TensorLoad):
        return None
    if not len(own) == len(load.indices) == len(store.indices) == 4:
        return None
    extents = [plain(d) for d in load.source.shape]
    moved = zip(load.indices, (own[0], own[2], own[1], own[3]), extents, strict=True)
    written = all(a.same_as(b) for a, b in zip(store.indices, own, strict=True))
    read = all(index.same_as(v) or (extent == 1 and plain(index) == 0) for index, v, extent in moved)
    return load.source if written and read else None


def repeats(function: Any) -> int:
    """Return how often a function repeats each matrix of its only parameter, one copy behind another, else 1.

    The result is [..., n, r, c] and its element [..., i, j, k] is [..., 0, j, k] of the parameter.
    """
    blocks = blocks_of(function)
    params = list(function.params)
    if blocks is None or len(blocks) != 1:
        return 1
    store, variables = blocks[0].body, [v.var for v in blocks[0].iter_vars]
    load = store.value
    if not isinstance(load, tvm.ir.TensorLoad) or not load.source.same_as(params[0]) or len(variables) < 3:
        return 1
    if len(load.indices) != len(variables) or len(store.indices) != len(variables):
        return 1
    for axis, (index, out, variable) in enumerate(zip(load.indices, store.indices, variables, strict=True)):
        repeated = axis == len(variables) - 3
        if not out.same_as(variable) or not (plain(index) == 0 if repeated else index.same_as(variable)):
            return 1
    group = plain(params[-1].shape[-3])
    return group if isinstance(group, int) and plain(params[0].shape[-3]) == 1 else 1
