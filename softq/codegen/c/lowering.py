"""The passes from kernels to the TIR that can be printed as C: plain loops over flat memory, without vectors."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.codegen.c.dead_stores import drop_dead_stores
from softq.codegen.c.hoisting import hoist_invariants
from softq.codegen.c.inlining import inline_values
from softq.codegen.c.narrowing import narrow_positions
from softq.codegen.c.scalars import split_arrays
from softq.codegen.c.terms import intrinsic_name
from softq.codegen.cpu.bindings import names_to_locals
from softq.compiler.tir.expressions import found
from softq.compiler.tir.simplification import simplify
from softq.compiler.tir.transforms import to_plain_loops
from softq.errors import RefusalError

_C = tvm.target.Target("c")
"""Of which TVM knows no instructions of its own: it takes no multiply-add for one."""

_HINTS = ("llvm.prefetch", "llvm.prefetch.p0")
"""Intrinsics that such a processor has no use for: it has no cache, or asks for memory by itself."""


def lower(function: tirx.PrimFunc, fused: bool = False) -> tirx.PrimFunc:
    """Return a kernel as `function.Function` takes it.

    Args:
        function: It has its `global_symbol` and only pointers and scalars as parameters, no buffer map.
        fused: Whether sums of products are rounded once, which has to be an instruction.

    Raises:
        RefusalError: it has a loop whose end is not known where it begins.
    """
    if found(function.body, tirx.While):
        raise RefusalError(f"a loop of {function.attrs['global_symbol']} that ends by a condition has no form in C")
    module = tvm.IRModule({str(function.attrs["global_symbol"]): function})
    passes = [tirx.transform.ConvertSSA(), tirx.transform.VectorizeLoop(False), tirx.transform.BindTarget(_C)]
    loops = [*to_plain_loops([], [tirx.transform.CommonSubexprElim()], shared=False), names_to_locals]
    cleaned = [
        split_arrays,
        inline_values,
        simplify(),
        hoist_invariants,
        tirx.transform.CommonSubexprElim(),
        *([fuse_multiply_adds] if fused else []),
        drop_dead_stores,
        tirx.transform.RemoveNoOp(),
        drop_dead_stores,  # what was needed by loops that are gone
        narrow_positions,
    ]
    (lowered,) = tvm.ir.transform.Sequential([drop_hints, *passes, *loops, *cleaned])(module).functions.values()
    return lowered


@tvm.ir.transform.module_pass(opt_level=0)
def drop_hints(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Remove prefetches, so that no address is computed for them."""

    def without(x: tirx.Evaluate) -> tirx.Evaluate:
        call = x.value
        is_intrinsic = isinstance(call, tvm.ir.Call) and str(getattr(call.op, "name", "")) == "tirx.call_llvm_intrin"
        return tirx.Evaluate(0) if is_intrinsic and intrinsic_name(call) in _HINTS else x

    return tvm.IRModule(
        {v: f.with_body(structural_map(f.body, (tirx.Evaluate, without))) for v, f in module.functions.items()}
    )


@tvm.ir.transform.module_pass(opt_level=0)
def fuse_multiply_adds(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Let a float product that is added to something be one operation with the sum; fenced ones are calls and stay."""
    return tvm.IRModule(
        {v: f.with_body(structural_map(f.body, (tirx.Add, _fused))) for v, f in module.functions.items()}
    )


def _fused(x: tirx.Add) -> Any:
    name = str(x.ty.dtype)
    if name != "float32":
        return x
    for product, other in ((x.b, x.a), (x.a, x.b)):
        if isinstance(product, tirx.Mul):
            return tirx.call_pure_extern(name, "fmaf", product.a, product.b, other)
    return x
