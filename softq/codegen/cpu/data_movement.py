# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""Kernels that move numbers: sizes, sums along an axis, positions, scatters, copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.compiler.legalize import min_max
from softq.compiler.ops import CumSumCall, ScatterCall


def sizes_kernel(symbol: str, count: int) -> tirx.PrimFunc:
    """Return `symbol(out, int64_t sizes..., begin, end)`, which writes the sizes."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointer = T.arg("out", T.handle("int64"))
        values = [T.arg(f"s{i}", T.int64()) for i in range(count)]
        begin, end = T.arg("begin", T.int64()), T.arg("end", T.int64())
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        out = T.decl_buffer((count,), "int64", data=pointer, align=8)
        with T.serial(begin, end):
            for position, value in enumerate(values):
                T.buffer_store(out, value, [tirx.IntImm("int64", position)])
    return builder.get()


def cum_sum_kernel(symbol: str, dtype: str, call: CumSumCall) -> tirx.PrimFunc:
    """Return `symbol(x, out, length, inner, begin, end)`: sums along an axis; a work item is a line of it."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(name, T.handle(dtype)) for name in ("x", "out")]
        length, inner, begin, end = (T.arg(name, T.int64()) for name in ("length", "inner", "begin", "end"))
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        x, out = (T.decl_buffer((end * length,), dtype, data=p, align=1) for p in pointers)
        total = T.alloc_buffer((1,), dtype, scope="local")
        zero = tirx.IntImm("int64", 0)
        with T.serial(begin, end) as item:
            first = tirx.truncdiv(item, inner) * length * inner + tirx.truncmod(item, inner)
            T.buffer_store(total, tirx.const(0, dtype), [zero])
            with T.serial(zero, length) as step:
                at = first + (length - 1 - step if call.reverse else step) * inner
                if call.exclusive:
                    T.buffer_store(out, total[zero], [at])
                T.buffer_store(total, total[zero] + x[at], [zero])
                if not call.exclusive:
                    T.buffer_store(out, total[zero], [at])
    return builder.get()


def positions_kernel(symbol: str, axes: int) -> tirx.PrimFunc:
    """Return `symbol(flag, given, out, extents..., begin, end)`: indices from the front, one of each axis an item."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(n, T.handle(t)) for n, t in (("flag", "int32"), ("given", "int64"), ("out", "int64"))]
        extents = [T.arg(f"extent{i}", T.int64()) for i in range(axes)]
        begin, end = T.arg("begin", T.int64()), T.arg("end", T.int64())
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        flag = T.decl_buffer((1,), "int32", data=pointers[0], align=4)
        given, out = (T.decl_buffer((end * axes,), "int64", data=p, align=8) for p in pointers[1:])
        zero = tirx.IntImm("int64", 0)
        with T.serial(begin, end) as item:
            for axis, extent in enumerate(extents):
                at = item * axes + axis
                index = given[at] + tirx.Select(given[at] < 0, extent, zero)
                inside = tirx.And(index >= 0, index < extent)
                # A device looks at the flag when all is done: what reads in between stays inside its array.
                T.buffer_store(out, tirx.Select(inside, index, zero), [at])
                with T.If(tirx.Not(inside)), T.Then():
                    T.buffer_store(flag, tirx.IntImm("int32", 1), [zero])
    return builder.get()


_JOIN: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": min_max.greater,
    "min": min_max.lesser,
}


def scatter_kernel(symbol: str, dtype: str, call: ScatterCall) -> tirx.PrimFunc:
    """Return `symbol(at, updates, out, extents..., count, inner, begin, end)`, which writes updates in their order."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(n, T.handle(t)) for n, t in (("at", "int64"), ("updates", dtype), ("out", dtype))]
        extents = [T.arg(f"extent{i}", T.int64()) for i in range(call.depth)]
        count, inner, begin, end = (T.arg(name, T.int64()) for name in ("count", "inner", "begin", "end"))
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        at = T.decl_buffer((count,), "int64", data=pointers[0], align=8)
        updates, out = (T.decl_buffer((count,), dtype, data=p, align=1) for p in pointers[1:])
        zero = tirx.IntImm("int64", 0)
        with T.serial(begin, end), T.serial(zero, count) as item, T.serial(zero, inner) as j:
            place: Any = zero
            for axis, extent in enumerate(extents):
                place = place * extent + at[item * call.depth + axis]
            place = place * inner + j
            T.buffer_store(out, _JOIN[call.reduction](out[place], updates[item * inner + j]), [place])
    return builder.get()


def copy_kernel(symbol: str) -> tirx.PrimFunc:
    """Return `symbol(source, out, begin, end)`; a work item is a byte."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = [T.arg(name, T.handle("uint8")) for name in ("source", "out")]
        begin, end = T.arg("begin", T.int64()), T.arg("end", T.int64())
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        source, out = (T.decl_buffer((end,), "uint8", data=p, align=1) for p in pointers)
        with T.serial(begin, end) as i:
            T.buffer_store(out, source[i], [i])
    return builder.get()
