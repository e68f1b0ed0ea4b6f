"""TVM's kernels of the rest of a model as text for a device: each thread does one work item.

Sums along rows (normalizations and means) have one block per row, as TVM's own schedules for GPUs (dlight) have them:
with one thread per row loads would not be coalesced, and most of a GPU would idle. The threads of a block stride along
the row and reduce their sums through shared memory; what is made of them follows in the same kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from softq.codegen.gpu.dialect.dialects import CUDA, Dialect
from softq.compiler.tir.expressions import found
from softq.compiler.tir.loop_nests import Nest, numbers_of, with_pointers
from softq.compiler.tir.symbolic import key, plain
from softq.compiler.tir.transforms import flattened, to_plain_loops
from softq.compiler.tvm_errors import refusal_of

THREADS = 128

_MOST_BLOCKS = 2**31 - 1

# What TVM's CUDA text uses of its own header where no number is of 16 bits; that header needs the toolkit's.
_WORDS = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_NAN __longlong_as_double(0x7fffffffffffffffll)
"""
_HEADED = ("half", "bfloat16")


def target_of(dialect: Dialect, arch: str) -> tvm.target.Target:
    """Return TVM's description of a device."""
    return tvm.target.Target({"kind": "cuda", "arch": arch} if dialect is CUDA else {"kind": "opencl"})


def source(items: Sequence[tirx.PrimFunc], blocks: Sequence[tirx.PrimFunc], dialect: Dialect, arch: str) -> str:
    """Return kernels as text in a language.

    Args:
        items: Kernels over ranges of work items, which become one thread per item. The last two parameters are the
            range; in their place the kernel takes the number of items.
        blocks: Kernels with threads and blocks of their own.
        dialect: The language.
        arch: The device's architecture, if the language is CUDA's.

    Raises:
        RefusalError: TVM cannot write them.
    """
    if not items and not blocks:
        return ""
    target = target_of(dialect, arch)
    try:
        module = _lowered([_device(f, target) for f in items], to_plain_loops())
        module.update(_lowered([_marked(f, target, f) for f in blocks], _LAST))
        text = str(tvm.get_global_func(f"target.build.{target.kind.name}")(module, target).inspect_source())
    except (RuntimeError, ValueError) as error:
        raise refusal_of(f"TVM cannot write kernels for {dialect.name}") from error
    if dialect is not CUDA:
        return text
    # A few words take the place of TVM's header, unless that has types that are needed.
    kernels = text[text.index('extern "C"') :]
    return text if any(word in kernels for word in _HEADED) else _WORDS + kernels


def _device(function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
    *params, begin, end = function.params
    items = tirx.Var("items", "int64")
    block, thread = tirx.Var("block", "int32"), tirx.Var("thread", "int32")
    item = block.astype("int64") * tirx.IntImm("int64", THREADS) + thread.astype("int64")
    one = tirx.SeqStmt([tirx.Bind(begin, item), tirx.Bind(end, begin + tirx.IntImm("int64", 1)), function.body])
    body: Any = tirx.IfThenElse(item < items, one, None)
    for var, name, extent in ((thread, "threadIdx.x", THREADS), (block, "blockIdx.x", _MOST_BLOCKS)):
        axis = tirx.IterVar(None, var, tirx.IterVar.ThreadIndex, name)
        body = tirx.AttrStmt(axis, "thread_extent", tirx.IntImm("int32", extent), body)
    return _marked(tirx.PrimFunc([*params, items], body), target, function)


def _marked(kernel: Any, target: tvm.target.Target, named: tirx.PrimFunc) -> Any:
    """Return a kernel with what TVM's code generation asks for, and the name of a function."""
    attributes = {"tirx.noalias": True, "target": target, "calling_conv": 2, "tirx.is_global_func": True, "s_tir": True}
    for name, value in attributes.items():
        kernel = kernel.with_attr(name, value)
    return kernel.with_attr("global_symbol", named.attrs["global_symbol"])


_LAST = [
    tirx.transform.BF16StorageLegalize(),
    tirx.transform.LowerWarpMemory(),
    tirx.transform.StmtSimplify(),
    tirx.transform.LowerIntrin(),
    tirx.transform.ConvertSSA(),
]
"""What is left to do with kernels that have threads."""


def _lowered(functions: Sequence[tirx.PrimFunc], passes: Sequence[tvm.ir.transform.Pass]) -> tvm.IRModule:
    module = tvm.IRModule({str(f.attrs["global_symbol"]): f for f in functions})
    return tvm.ir.transform.Sequential(list(passes))(module) if functions else module


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
    lowered = _with_threads(schedule.mod["main"].with_attr("target", target))
    extents: dict[str, Any] = {}
    for axis in found(lowered.body, tirx.AttrStmt):
        if axis.attr_key == "thread_extent":
            extents[str(axis.node.thread_tag)] = plain(axis.value)
    if set(extents) != {"blockIdx.x", "threadIdx.x"} or not isinstance(extents["threadIdx.x"], int):
        return None
    return Reduction(_with_pointers(lowered, symbol, extents["blockIdx.x"]), extents["threadIdx.x"])


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


def _with_threads(function: tirx.PrimFunc) -> tirx.PrimFunc:
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


def _with_pointers(lowered: tirx.PrimFunc, symbol: str, blocks: Any) -> Nest:
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
