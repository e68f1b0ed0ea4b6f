"""Writing kernels as TIR: functions of plain pointers and int64 numbers, over a range of work items."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


@dataclass
class KernelFunction:
    """A kernel while it is written.

    Attributes:
        pointers: Its pointers by name.
        memory: What they point to: flat buffers.
        sizes: Its numbers by name; the last two, `begin` and `end`, are the range of work items.
        function: The kernel, when it is complete.
    """

    pointers: Mapping[str, tirx.Var]
    memory: Mapping[str, Any]
    sizes: Mapping[str, tirx.Var]
    function: tirx.PrimFunc = field(init=False)


@contextmanager
def kernel_function(
    symbol: str, pointers: Mapping[str, str], sizes: Sequence[str], unaligned: Sequence[str] = ()
) -> Generator[KernelFunction]:
    """Open a kernel `symbol(pointers..., int64_t sizes..., int64_t begin, int64_t end)`; what follows is its body.

    Args:
        symbol: Its name.
        pointers: NumPy's names of the types that its pointers point to.
        sizes: Names of its numbers.
        unaligned: Pointers that may be odd; the others are multiples of their element's size.
    """
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        given = {name: T.arg(name, T.handle(dtype)) for name, dtype in pointers.items()}
        numbers = {name: T.arg(name, T.int64()) for name in (*sizes, "begin", "end")}
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        memory = {
            name: T.decl_buffer(
                (numbers["end"],), dtype, data=given[name], align=1 if name in unaligned else np.dtype(dtype).itemsize
            )
            for name, dtype in pointers.items()
        }
        made = KernelFunction(given, memory, numbers)
        yield made
    made.function = builder.get()
