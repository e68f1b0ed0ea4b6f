"""Sums along rows with one block per row: normalizations and means, as TVM's own schedules for GPUs (dlight) have them.

With one thread per row loads would not be coalesced, and most of a GPU would idle. Here the threads of a block stride
along the row and reduce their sums through shared memory; what is made of them follows in the same kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from softq.compiler.tir.expressions import found
from softq.compiler.tir.loop_nests import Nest, numbers_of, with_pointers
from softq.compiler.tir.symbolic import key, plain
from softq.compiler.tir.transforms import flattened

_SHORT = 64
"""Shorter rows get one thread each: most of a block would have nothing to do."""


@dataclass(frozen=True)
class Reduction:
    """A function as one kernel.

    Attributes:
        nest: The kernel, its work items being blocks.
        threads: Threads per block.
    """

    nest: Nest
    threads: int


def reduction(function: tirx.PrimFunc, symbol: str, target: tvm.target.Target) -> Reduction | None:
    """Return a function of sums along rows as one kernel; None if it is something else."""
    if not _sums_rows(function):
        return None
    given = function.with_attr("target", target)
    rules = (dlight.gpu.GeneralReduction(), dlight.gpu.Reduction())
    schedule = next((made for rule in rules if (made := rule.apply(given, target, False)) is not None), None)
    if schedule is None:
        return None
    lowered = _lowered(schedule.mod["main"].with_attr("target", target))
    extents: dict[str, Any] = {}
    for axis in found(lowered.body, tirx.AttrStmt):
        if axis.attr_key == "thread_extent":
            extents[str(axis.node.thread_tag)] = plain(axis.value)
    if set(extents) != {"blockIdx.x", "threadIdx.x"} or not isinstance(extents["threadIdx.x"], int):
        return None
    return Reduction(_kernel(lowered, symbol, extents["blockIdx.x"]), extents["threadIdx.x"])


def _sums_rows(function: tirx.PrimFunc) -> bool:
    """Say whether all that is reduced are sums of floats, along the last axes of what is read."""
    schedule = s_tir.Schedule(function)
    reduced = False
    for ref in schedule.get_child_blocks(schedule.get_sblock("root")):
        block = schedule.get(ref)
        kinds = [int(v.iter_type) for v in block.iter_vars]
        if all(kind == tirx.IterVar.DataPar for kind in kinds):
            continue
        reduced, store = True, block.body
        length = 1
        for var, kind in zip(block.iter_vars, kinds, strict=True):
            extent = plain(var.dom.extent)
            if kind != tirx.IterVar.DataPar:
                length = length * extent if isinstance(length, int) and isinstance(extent, int) else None
        if length is not None and length < _SHORT:
            return False
        if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
            return False
        total = store.value.a
        if not isinstance(total, tvm.ir.TensorLoad) or not total.source.same_as(store.buffer):
            return False
        if not str(store.value.ty.dtype).startswith("float"):
            return False
    return reduced


def _lowered(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled function with a device's threads and shared memory: TVM's own passes, in its order."""
    passes = [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        *flattened(),
        s_tir.transform.ThreadSync("shared"),
        s_tir.transform.ThreadSync("warp"),
        s_tir.transform.InferFragment(),
        s_tir.transform.LowerThreadAllreduce(),
    ]
    return tvm.ir.transform.Sequential(passes)(tvm.IRModule({"main": function}))["main"]


def _kernel(lowered: tirx.PrimFunc, symbol: str, blocks: Any) -> Nest:
    """Return a lowered function with plain pointers, then numbers, as parameters."""
    statements = lowered.body.seq if isinstance(lowered.body, tirx.SeqStmt) else [lowered.body]
    declared = {key(s.buffer): s for s in statements if isinstance(s, tirx.DeclBuffer)}
    rest = [s for s in statements if not isinstance(s, tirx.DeclBuffer)]
    statement = rest[0] if len(rest) == 1 else tirx.SeqStmt(rest)
    buffers, pointers, declarations = with_pointers(lowered, statement, declared)
    whole = tirx.SeqStmt([*declarations, statement])
    scalars = numbers_of(whole, pointers)
    kernel = tirx.PrimFunc([*pointers, *scalars], whole).with_attr("global_symbol", symbol)
    return Nest(kernel, tuple(buffers), tuple(scalars), blocks)
