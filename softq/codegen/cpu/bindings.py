"""Names in expressions as local variables.

TVM's code generator simplifies each value that an expression names, and all that stands in it again: its time grows by
a factor with every name in the value of another. Of local variables, which LLVM keeps in registers, it knows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map, structural_mutate

from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key

_CHOICE = tvm.ir.Op.get("prim.if_then_else")


@tvm.ir.transform.module_pass(opt_level=0)
def names_to_locals(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Replace the names in what is stored; few functions have any, and one look spares them a change of all stores."""
    return tvm.IRModule(
        {
            v: f.with_body(structural_map(f.body, (tirx.BufferStore, _changed))) if found(f.body, tirx.Let) else f
            for v, f in module.functions.items()
        }
    )


def _changed(store: tirx.BufferStore) -> tirx.Stmt:
    if not found(store.value, tirx.Let):
        return store
    locals_ = _Locals()
    value = locals_.expression(store.value)
    changed = tirx.BufferStore(store.buffer, value, list(store.indices))
    declared = [tirx.AllocBuffer(buffer) for buffer in locals_.buffers.values()]
    return tirx.SeqStmt([*declared, *locals_.statements, changed])


def _sequence(statements: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


class _Locals:
    """The local variables of a statement.

    Attributes:
        buffers: The variable of each name.
        statements: What is computed before.
    """

    def __init__(self) -> None:
        self.buffers: dict[Any, tirx.Buffer] = {}
        self.statements: list[tirx.Stmt] = []

    def expression(self, expr: Any) -> Any:
        callbacks = [(tirx.Let, self._let), (tirx.Var, self._var), (tvm.ir.Call, self._call)]
        return structural_mutate(expr, callbacks)

    def _let(self, let: tirx.Let, mutator: Any) -> Any:
        value = mutator.mutate(let.value)
        buffer = tirx.decl_buffer((1,), str(let.var.ty.dtype), let.var.name, scope="local")
        self.statements.append(tirx.BufferStore(buffer, value, [0]))
        self.buffers[key(let.var)] = buffer
        return mutator.mutate(let.body)

    def _var(self, var: tirx.Var, mutator: Any) -> Any:
        buffer = self.buffers.get(key(var))
        return var if buffer is None else buffer[0]

    def _call(self, call: tvm.ir.Call, mutator: Any) -> Any:
        """Keep what one branch alone may compute, elements outside of a tensor for one, in that branch."""
        if not call.op.same_as(_CHOICE):
            return mutator.default_mutate(call)
        condition = mutator.mutate(call.args[0])
        before, branches, values = self.statements, list[list[tirx.Stmt]](), list[Any]()
        for branch in call.args[1:]:
            self.statements = []
            values.append(mutator.mutate(branch))
            branches.append(self.statements)
        self.statements = before
        if not any(branches):
            return tirx.if_then_else(condition, *values)
        chosen = tirx.decl_buffer((1,), str(call.ty.dtype), "chosen", scope="local")
        self.buffers[key(chosen)] = chosen
        for statements, value in zip(branches, values, strict=True):
            statements.append(tirx.BufferStore(chosen, value, [0]))
        self.statements.append(tirx.IfThenElse(condition, *map(_sequence, branches)))
        return chosen[0]
