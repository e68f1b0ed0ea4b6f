"""Arrays of a function's own whose elements are named by constants, as variables."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key


@tvm.ir.transform.module_pass(opt_level=0)
def split_arrays(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Give each element of such an array a buffer of its own."""
    return tvm.IRModule({v: f.with_body(_split(f.body)) for v, f in module.functions.items()})


def _split(body: Any) -> Any:
    arrays = {key(a.buffer): a.buffer for a in found(body, tirx.AllocBuffer) if _count(a.buffer) > 1}
    for view in found(body, tirx.DeclBuffer):
        for var in found(view.data, tirx.Var):
            arrays.pop(key(var), None)
    for call in found(body, tvm.ir.Call):
        for arg in call.args:
            # An address, or the whole array, is given to someone.
            if isinstance(arg, tirx.Var):
                arrays.pop(key(arg), None)
            if str(getattr(call.op, "name", "")) == "tirx.address_of":
                arrays.pop(key(arg.source), None)
    places = [(x.source, x.indices) for x in found(body, tvm.ir.TensorLoad)]
    places += [(x.buffer, x.indices) for x in found(body, tirx.BufferStore)]
    for buffer, indices in places:
        if len(indices) != 1 or not isinstance(indices[0], tirx.IntImm):
            arrays.pop(key(buffer), None)
    parts: dict[tuple[int, int], Any] = {}

    def part(buffer: Any, index: Any) -> Any:
        place = key(buffer), int(index)
        if place not in parts:
            parts[place] = tirx.decl_buffer(
                (1,), str(buffer.dtype), f"{buffer.name}_{int(index)}".lstrip("_"), scope="local"
            )
        return parts[place]

    def load(x: Any) -> Any:
        return tirx.BufferLoad(part(x.source, x.indices[0]), [0]) if key(x.source) in arrays else x

    def store(x: Any) -> Any:
        return tirx.BufferStore(part(x.buffer, x.indices[0]), x.value, [0]) if key(x.buffer) in arrays else x

    changed = structural_map(body, ((tvm.ir.TensorLoad, load), (tirx.BufferStore, store)))

    def allocation(x: Any) -> Any:
        if key(x.buffer) not in arrays:
            return x
        mine = [tirx.AllocBuffer(buffer) for (owner, _), buffer in parts.items() if owner == key(x.buffer)]
        return tirx.SeqStmt(mine) if len(mine) > 1 else mine[0] if mine else tirx.Evaluate(0)

    return structural_map(changed, (tirx.AllocBuffer, allocation))


def _count(buffer: Any) -> int:
    count = 1
    for size in buffer.shape:
        count *= int(size)
    return count
