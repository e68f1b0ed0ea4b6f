"""TVM's kernels of the rest of a model as text for a device: each thread does one work item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from softq.codegen.gpu.dialect.dialects import CUDA, Dialect
from softq.compiler.tir.transforms import to_plain_loops
from softq.errors import SoftqError

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
        SoftqError: TVM cannot write them.
    """
    if not items and not blocks:
        return ""
    is_cuda, target = dialect is CUDA, target_of(dialect, arch)
    try:
        module = _lowered([_device(f, target) for f in items], to_plain_loops())
        module.update(_lowered([_marked(f, target, f) for f in blocks], _LAST))
        text = str(tvm.get_global_func(f"target.build.{target.kind.name}")(module, target).inspect_source())
    except (RuntimeError, ValueError) as error:
        raise SoftqError(f"TVM cannot write kernels for {dialect.name}: {str(error).splitlines()[-1]}") from error
    return _without_header(text) if is_cuda else text


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


def _without_header(text: str) -> str:
    """Return TVM's CUDA text with a few words in place of its header, unless that has types that are needed."""
    kernels = text[text.index('extern "C"') :]
    return text if any(word in kernels for word in _HEADED) else _WORDS + kernels
