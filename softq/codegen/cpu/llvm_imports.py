"""What kernels take from LLVM's intermediate form, since TIR has no name for it.

These are constant arrays in read-only memory, reads and writes under a mask whose alignment is told, and what hides
numbers from LLVM. TVM links the text with the kernel and puts functions in the place of their calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from softq.codegen.cpu.rows.arguments import CONSTANTS
from softq.codegen.cpu.rows.tir import COUNT, HIDE, READ, ROLLED, WRITE, bits_of
from softq.compiler.tir.expressions import found

_MASKED = re.compile(rf"({READ}|{WRITE})(\w+)x(\d+)")
_IMPORT = "pragma_import_llvm"
_TEXT = {
    READ: """
declare {type} @llvm.masked.load.{kind}.p0(ptr, {mask}, {type})
define {type} @{name}(ptr %at, {mask} %some) {{
  %x = call {type} @llvm.masked.load.{kind}.p0(ptr align {bytes} %at, {mask} %some, {type} zeroinitializer)
  ret {type} %x
}}
""",
    WRITE: """
declare void @llvm.masked.store.{kind}.p0({type}, ptr, {mask})
define void @{name}({type} %x, ptr %at, {mask} %some) {{
  call void @llvm.masked.store.{kind}.p0({type} %x, ptr align {bytes} %at, {mask} %some)
  ret void
}}
""",
}
_FIXED: Mapping[str, str] = {
    HIDE: f"""
define i32 @{HIDE}(i32 %x) {{
  %y = call i32 asm "", "=r,0"(i32 %x)
  ret i32 %y
}}
""",
    COUNT: f"""
define i32 @{COUNT}(i32 %x) {{
  %y = call i32 asm "", "=r,0"(i32 %x), !range !{{i32 1, i32 {1 << 30}}}
  ret i32 %y
}}
""",
    ROLLED: f"""
define void @{ROLLED}() {{
  call void asm sideeffect "", ""()
  ret void
}}
""",
}


@tvm.ir.transform.module_pass(opt_level=0)
def import_from_llvm(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Let kernels have constant arrays of their own in the place of parameters, and the functions that they call."""
    return tvm.IRModule({v: _imported(f) for v, f in module.functions.items()})


def imports_of(function: tirx.PrimFunc) -> tuple[str, ...]:
    """Return the texts that a kernel imports, which TVM leaves out where it prints the kernel."""
    return tuple(str(x.value.value) for x in found(function.body, tirx.AttrStmt) if str(x.attr_key) == _IMPORT)


def _imported(function: tirx.PrimFunc) -> tirx.PrimFunc:
    attrs: Any = {} if function.attrs is None else function.attrs
    given = {str(name): array.numpy() for name, array in dict(attrs.get(CONSTANTS, {})).items()}
    body, text, symbol = function.body, "", str(attrs.get("global_symbol", ""))
    for param in function.params:
        if str(param.name) in given:
            name = f"{symbol}_{param.name}"
            address = tvm.ir.Call(tvm.ir.Op.get("tirx.call_pure_extern"), [tvm.ir.StringImm(name)], ret_ty=param.ty)
            body = tirx.SeqStmt([tirx.Bind(param, address), body])
            text += _constant(name, given[str(param.name)])
    text += "".join(_functions(body))
    if not text:
        return function
    body = tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, tvm.ir.StringImm(text), body)
    params = [param for param in function.params if str(param.name) not in given]
    return tirx.PrimFunc(params, body, function.ret_type, attrs=function.attrs)


def _constant(name: str, array: NDArray[np.generic]) -> str:
    """Return an array, and a function that gives its address: of that LLVM leaves nothing."""
    kind, words = f"i{array.dtype.itemsize * 8}", array.ravel().view(f"u{array.dtype.itemsize}")
    values = ", ".join(f"{kind} {value}" for value in words.tolist())
    return f"""
@{name}_values = internal constant [{array.size} x {kind}] [{values}], align {array.dtype.itemsize}
define ptr @{name}() {{
  ret ptr @{name}_values
}}
"""


def _functions(body: Any) -> Iterator[str]:
    called = [call.args[0].value for call in found(body, tvm.ir.Call) if str(call.op.name) == "tirx.call_extern"]
    for name in dict.fromkeys(map(str, called)):
        yield _FIXED.get(name, "")
        match = _MASKED.fullmatch(name)
        if match is not None:
            which, element, lanes = match.groups()
            bits = bits_of(element)
            kind = "float" if element.startswith("float") else f"i{bits}"
            told: Mapping[str, object] = {
                "name": name, "type": f"<{lanes} x {kind}>", "mask": f"<{lanes} x i1>", "bytes": bits // 8,
                "kind": f"v{lanes}{'f' if kind == 'float' else 'i'}{bits}",
            }  # fmt: skip
            yield _TEXT[which].format(**told)
