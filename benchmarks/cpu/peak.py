# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""As many multiply-adds as some work has, in registers, where nothing else is to do: the bound of all products."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from benchmarks.cpu.native import library, pointer
from benchmarks.cpu.timing import Call
from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.tiles import broadcast, number, vector

# Enough for a latency of four cycles and two units; they fit 16 registers.
_ACCUMULATORS = 12


def peak_call(operations: int, machine: Cpu, threads: int) -> Call:
    """Return a call that does so many float32 operations, a multiply-add counted as two, on so many threads."""
    lanes = max(machine.lanes(32), 1)
    steps = ctypes.c_int64(max(1, operations // (2 * _ACCUMULATORS * lanes * threads)))
    loaded = library([_kernel(lanes)], machine)
    parts = [np.zeros(_ACCUMULATORS * lanes, np.float32) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def one(part: np.ndarray) -> object:
        return loaded.peak(pointer(part), steps)

    return lambda: one(parts[0]) if threads == 1 else list(pool.map(one, parts))


def _kernel(lanes: int) -> tirx.PrimFunc:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("peak")
        data, steps = T.arg("data", T.handle("float32")), T.arg("steps", T.int64())
        T.func_attr({"global_symbol": "peak", "tirx.noalias": True})
        out = T.decl_buffer((_ACCUMULATORS * lanes,), "float32", data=data, align=4)
        sums = T.alloc_buffer((_ACCUMULATORS * lanes,), "float32", scope="local")
        places = [vector(number(i * lanes), lanes) for i in range(_ACCUMULATORS)]
        for at in places:
            T.buffer_store(sums, out[at], [at])
        factor, term = (broadcast(tirx.FloatImm("float32", value), lanes) for value in (0.9375, 0.0625))
        with T.serial(number(0), steps):
            for at in places:
                T.buffer_store(sums, sums[at] * factor + term, [at])
        for at in places:
            T.buffer_store(out, sums[at], [at])
    return builder.get()
