"""Kernels of rows whose memory begins at another row than the first: in C no address may stand before its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.codegen.cpu.rows.arguments import CONSTANTS
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key

SUFFIX = "_shifted"


def shift_memory(function: tirx.PrimFunc, symbol: str, pointers: Sequence[int]) -> tirx.PrimFunc:
    """Return a kernel that takes besides, before its work items, by how many elements places of pointers are too high.

    Args:
        function: A kernel of plain pointers and numbers.
        symbol: The name of the other one.
        pointers: The positions of these pointers, in the order of the numbers.
    """
    params = list(function.params)
    shifts = {key(params[at]): tirx.Var(f"shift{i}", "int64") for i, at in enumerate(pointers)}
    views: dict[int, tirx.Var] = {}
    for view in found(function.body, tirx.DeclBuffer):
        if found(view.data, tvm.ir.TensorLoad):
            continue  # It begins at a place, which is moved below.
        (of,) = (key(var) for var in found(view.data, tirx.Var))
        if of in shifts or of in views:
            views[key(view.buffer)] = shifts[of] if of in shifts else views[of]

    def load(x: Any) -> Any:
        shift = views.get(key(x.source))
        return x if shift is None else tirx.BufferLoad(x.source, _moved(x.indices, shift))

    def store(x: Any) -> Any:
        shift = views.get(key(x.buffer))
        return x if shift is None else tirx.BufferStore(x.buffer, x.value, _moved(x.indices, shift))

    body = structural_map(function.body, ((tvm.ir.TensorLoad, load), (tirx.BufferStore, store)))
    # Behind the work items stand tables that no caller gives.
    items = len(params) - len(function.attrs.get(CONSTANTS, {})) - 2
    given = [*params[:items], *shifts.values(), *params[items:]]
    return tirx.PrimFunc(given, body, function.ret_type, attrs=function.attrs).with_attr("global_symbol", symbol)


def _moved(indices: Sequence[Any], shift: tirx.Var) -> list[Any]:
    (index,) = indices
    assert not isinstance(index, tirx.Ramp), "kernels in C have no vectors"
    return [index - shift]
