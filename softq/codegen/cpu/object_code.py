"""Object code from kernels: TIR functions with plain pointers in, an object file without undefined symbols out."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi.structural import structural_map

from softq.artifact.machine import Cpu
from softq.cache import cached
from softq.codegen.cpu import bindings, llvm_imports
from softq.codegen.cpu.bindings import names_to_locals
from softq.codegen.cpu.llvm_imports import import_from_llvm
from softq.compiler.tir import transforms
from softq.compiler.tir.transforms import to_plain_loops
from softq.compiler.tvm_errors import refusing
from softq.jobs import Later, Results
from softq.scratch import scratch_folder


def lower(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> tvm.IRModule:
    """Return the kernels as code generation takes them.

    Args:
        functions: Each has its `global_symbol` and only pointers and scalars as parameters, no buffer map; loops over
            work items take their limits from the parameters, so nothing here is parallel.
        machine: What they are for.
    """
    module = tvm.IRModule({str(f.attrs["global_symbol"]): f for f in functions})
    return tvm.ir.transform.Sequential(
        [
            # A reduction in parts has the same names with other values in each part.
            tirx.transform.ConvertSSA(),
            # Before a target is known: where vectors may have any length TVM writes a test for every element.
            tirx.transform.VectorizeLoop(True),
            tirx.transform.BindTarget(target_of(machine)),
            *to_plain_loops([_compacted], [tirx.transform.CommonSubexprElim()]),
            _unequal_to_nan,
            names_to_locals,
            import_from_llvm,
        ]
    )(module)


@tvm.ir.transform.module_pass(opt_level=0)
def _compacted(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Shrink the buffers of schedulable functions, which may hold blocks of TVM's own, to what of them is used.

    Row kernels are none of these and say how much they need. In those the pass would join what gathers read from a
    table, and it fails where their vectors are of several lengths.
    """
    blocks = {v: f for v, f in module.functions.items() if f.attrs is not None and f.attrs.get("s_tir")}
    others = {v: f for v, f in module.functions.items() if v not in blocks}
    whole = s_tir.transform.CompactBufferAllocation()(tvm.IRModule(blocks))
    whole.update(tvm.IRModule(others))
    return whole


@tvm.ir.transform.module_pass(opt_level=0)
def _unequal_to_nan(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Let NaN differ from every number: TVM generates LLVM's ordered inequality, which is false for it."""
    return tvm.IRModule(
        {v: f.with_body(structural_map(f.body, (tirx.NE, _unequal))) for v, f in module.functions.items()}
    )


def _unequal(expr: Any) -> Any:
    return tirx.Not(tirx.EQ(expr.a, expr.b)) if str(expr.a.ty).startswith("float") else expr


def target_of(machine: Cpu) -> tvm.target.Target:
    """Return TVM's description of the machine."""
    description: dict[str, object] = {"kind": "llvm", "mtriple": machine.triple, "mcpu": machine.cpu}
    if machine.features:
        description["mattr"] = [f"+{feature}" for feature in machine.features]
    if machine.float_abi:
        description["mfloat-abi"] = machine.float_abi
    if machine.in_flash:
        description["vector-width"] = machine.vector_bytes * 8  # which TVM would warn that it guesses
        # At level 3 loops are unrolled until what they hold no longer fits eight vectors, in one and a half times the
        # code: the int8 ViT takes 13.9 million instructions on a Cortex-M55 then, at this level 8.4.
        description["opt-level"] = 2
        # A number in 32 bits is two instructions of 32 bits, or one beside the number, which several places share.
        description["mattr"] = [*(f"+{feature}" for feature in machine.features), "+no-movt"]
        # TVM tells LLVM that no two buffers share memory. Of a kernel that is inlined in another one they do: what it
        # had written was not there where its caller read it. And LLVM lets a loop count its elements where products of
        # bytes have 16 bits, whose upper halves are lost then.
        description["cl-opt"] = ["-enable-tbaa:bool=false", "-arm-loloops-disable-tailpred:bool=true"]
    if machine.abi:
        description["mabi"] = machine.abi
    return tvm.target.Target(description)


_MOST_INLINED = 20_000
"""Characters of a kernel that LLVM may inline where it is called; longer ones have far too many instructions."""


def objects(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> Sequence[bytes]:
    """Return object files with the kernels, from the cache those that were compiled before.

    Each kernel is compiled alone, but for small ones that others call, which LLVM may inline there. Whoever reads the
    files waits for them, and is told then that TVM cannot generate code for the machine (RefusalError).
    """
    return Later(partial(_objects, functions, machine))


def _objects(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> Sequence[bytes]:
    symbols = [str(f.attrs["global_symbol"]) for f in functions]
    texts = dict(zip(symbols, Results([partial(_text, f) for f in functions], [1] * len(functions)), strict=True))
    by_symbol = dict(zip(symbols, functions, strict=True))
    shared = (*compiler_key(), str(target_of(machine)))

    def compiled(group: Sequence[str]) -> bytes:
        key = (*shared, *(text for symbol in group for text in (symbol, texts[symbol])))
        return cached(key, partial(object_code, [by_symbol[symbol] for symbol in group], machine))

    groups = _groups(texts)
    costs = [sum(len(texts[symbol]) for symbol in group) for group in groups]
    return Results([partial(compiled, group) for group in groups], costs)


def _text(function: tirx.PrimFunc) -> str:
    return str(function.script())


def _groups(texts: dict[str, str]) -> list[list[str]]:
    """Return the symbols that are compiled together: a kernel with the small ones that it calls."""
    group_of = {symbol: [symbol] for symbol in texts}
    for caller, text in texts.items():
        for callee in re.findall(r'"(\w+)"', text):
            group, other = group_of[caller], group_of.get(callee)
            if other is not None and other is not group and len(texts[callee]) <= _MOST_INLINED:
                group += other
                group_of.update(dict.fromkeys(other, group))
    # Also of no kernel at all there is an object file.
    return list({id(group): group for group in group_of.values()}.values()) or [[]]


@cache
def compiler_key() -> tuple[str, ...]:
    """Return what of softq and TVM object code hangs on."""
    llvm = tvm.get_global_func("target.llvm_version_major")()
    here = tuple(inspect.getsource(module) for module in (sys.modules[__name__], transforms, bindings, llvm_imports))
    return (str(tvm.__version__), str(llvm), *here)


def object_code(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> bytes:
    """Return an ELF object file with the kernels.

    Raises:
        RefusalError: TVM cannot generate code for the machine.
    """
    refusal = _refusal(functions, machine)
    with refusing(refusal):
        lowered = lower(functions, machine)
    return lowered_code(lowered, machine, refusal)


def lowered_code(lowered: tvm.IRModule, machine: Cpu, refusal: str) -> bytes:
    """Return an ELF object file with kernels that are lowered already.

    Raises:
        RefusalError: TVM cannot generate code for the machine; the message begins with `refusal`.
    """
    with scratch_folder() as folder, refusing(refusal):
        path = folder / "kernels.o"
        _build(lowered, machine).write_to_file(str(path))
        return path.read_bytes()


def source(functions: Sequence[tirx.PrimFunc], machine: Cpu, form: str = "asm") -> str:
    """Return the kernels as assembly (`asm`) or LLVM's intermediate form (`ll`), for tests and for reading."""
    return str(_generate(functions, machine).inspect_source(form))


def _generate(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> tvm.runtime.Module:
    with refusing(_refusal(functions, machine)):
        return _build(lower(functions, machine), machine)


def _build(lowered: tvm.IRModule, machine: Cpu) -> tvm.runtime.Module:
    return tvm.get_global_func("target.build.llvm")(lowered, target_of(machine))


def _refusal(functions: Sequence[tirx.PrimFunc], machine: Cpu) -> str:
    names = ", ".join(str(f.attrs["global_symbol"]) for f in functions)
    return f"TVM cannot generate code of {names} for {machine.name}"
