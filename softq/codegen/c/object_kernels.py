"""Kernels as an object of LLVM's, where C has no vectors: for the sizes of one model, with positions of 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.artifact.firmware.elf_object import trim_object
from softq.artifact.firmware.numbers import ctype
from softq.artifact.machine import Cpu
from softq.cache import cached
from softq.codegen.c.narrowing import narrow_positions
from softq.codegen.c.terms import dtype, is_address, is_kernel_call, is_pointer
from softq.codegen.cpu import object_code
from softq.codegen.cpu.llvm_imports import imports_of
from softq.codegen.cpu.rows.tir import WRITE
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key


def lower(function: tirx.PrimFunc, machine: Cpu) -> tirx.PrimFunc:
    """Return a kernel as `kernel_object` takes it.

    Args:
        function: It has its `global_symbol` and only pointers and scalars as parameters, no buffer map.
        machine: What it is for.
    """
    (lowered,) = narrow_positions(object_code.lower([function], machine)).functions.values()
    return lowered


def head(function: tirx.PrimFunc, symbol: str) -> str:
    """Return the declaration of a kernel in C, without an end."""
    given = [f"{'void *' if is_pointer(p) else ctype(dtype(p)) + ' '}{p.name}" for p in function.params]
    return f"{symbol}({', '.join(given) or 'void'})"


def writes(function: tirx.PrimFunc, kept: tuple[int, ...]) -> frozenset[int]:
    """Return which of a step's arguments a kernel writes to, or gives to kernels that may.

    Args:
        function: It.
        kept: Which of the arguments it takes.
    """
    outer: dict[int, Any] = {}
    for view in found(function.body, tirx.DeclBuffer):
        data = view.data
        if isinstance(data, tvm.ir.Call):
            data = data.args[0].source if is_address(data) else data.args[0]
        outer[key(view.buffer)] = data
    calls = [call for call in found(function.body, tvm.ir.Call) if is_kernel_call(call) or _writes_some(call)]
    given = [load for call in calls for arg in call.args for load in found(arg, tvm.ir.TensorLoad)]
    written: set[int] = set()
    for buffer in (*(x.source for x in given), *(x.buffer for x in found(function.body, tirx.BufferStore))):
        at = key(buffer)
        while at not in written:
            written.add(at)
            at = key(outer[at]) if at in outer else at
    return frozenset(at for at, param in zip(kept, function.params, strict=True) if key(param) in written)


def _writes_some(x: tvm.ir.Call) -> bool:
    """Say whether a call writes elements under a mask."""
    return str(getattr(x.op, "name", "")) == "tirx.call_extern" and str(x.args[0].value).startswith(WRITE)


def kernel_object(functions: Mapping[str, tirx.PrimFunc], called: set[str], machine: Cpu, name: str) -> bytes:
    """Return an object file with the kernels, whose symbols begin with a name.

    Args:
        functions: The kernels by symbol, lowered.
        called: Those of them that others than kernels call.
        machine: What they are for.
        name: What symbols begin with.

    Raises:
        RefusalError: TVM cannot generate code for the machine.
        SoftqError: the kernels need a function that projects do not have.
    """
    inner = {symbol: tvm.ir.GlobalVar(f"{name}_{symbol}") for symbol in functions if symbol not in called}
    module = tvm.IRModule()
    for symbol, function in functions.items():
        # What kernels alone call has no symbol that a linker sees.
        body = function.with_body(structural_map(function.body, (tvm.ir.Call, lambda x: _call(x, inner))))
        whole = f"{name}_{symbol}"
        if symbol in inner:
            module[inner[symbol]] = body.without_attr("global_symbol")
        else:
            module[whole] = body.with_attr("global_symbol", whole)
    refusal = f"TVM cannot generate code of {name}_kernels.o"
    imports = (text for function in functions.values() for text in imports_of(function))
    key = (*object_code.compiler_key(), str(object_code.target_of(machine)), str(module.script()), *imports)
    return trim_object(cached(key, lambda: object_code.lowered_code(module, machine, refusal)), name)


def _call(x: tvm.ir.Call, inner: Mapping[str, tvm.ir.GlobalVar]) -> Any:
    if not is_kernel_call(x) or str(x.args[0].value) not in inner:
        return x
    callee, *given = x.args
    return tvm.ir.Call(inner[str(callee.value)], given, ret_ty="void")
