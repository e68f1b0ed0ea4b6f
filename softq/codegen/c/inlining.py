"""Values that are stored to be read once, in the place where they are read: the text has fewer names, and sums of
products are one expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.codegen.c.terms import pointed_to
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key

_SAME = (tirx.Var, tirx.IntImm, tirx.FloatImm)


@tvm.ir.transform.module_pass(opt_level=0)
def inline_values(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Put values of variables that are stored once in the place where they are read."""
    return tvm.IRModule({v: f.with_body(_Inlining(f.body).body()) for v, f in module.functions.items()})


@dataclass
class _Use:
    """How a variable is used.

    Attributes:
        stores: How often it is written in the text.
        loads: How often it is read in the text.
        loops: The innermost loops that it is written and read in.
    """

    stores: int = 0
    loads: int = 0
    loops: set[int] = field(default_factory=set)


class _Inlining:
    def __init__(self, body: Any) -> None:
        self._body = body
        self._uses = {key(a.buffer): _Use() for a in found(body, tirx.AllocBuffer) if _is_scalar(a.buffer)}
        self._roots: dict[int, int] = {}
        for view in found(body, tirx.DeclBuffer):
            for var in found(view.data, tirx.Var):
                self._uses.pop(key(var), None)
            of = pointed_to(view.data)
            self._roots[key(view.buffer)] = self._root(of)
        self._written = {self._root(store.buffer) for store in found(body, tirx.BufferStore)}
        # Whoever is given an address may write there.
        given = [arg for call in found(body, tvm.ir.Call) if _has_effect(call) for arg in call.args]
        self._written |= {self._root(of) for arg in given if (of := pointed_to(arg)) is not None}
        self._count(body, 0)
        self._pending: dict[int, Any] = {}

    def body(self) -> Any:
        """Return the body with values in the place of variables."""
        return self._statement(self._body)

    def _count(self, statement: Any, loop: int) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                self._count(part, loop)
        elif isinstance(statement, tirx.For):
            self._read(statement.min, loop)
            self._read(statement.extent, loop)
            self._count(statement.body, key(statement))
        elif isinstance(statement, tirx.IfThenElse):
            self._read(statement.condition, loop)
            for part in (statement.then_case, statement.else_case):
                if part is not None:
                    self._count(part, loop)
        elif isinstance(statement, tirx.BufferStore):
            self._read(statement.value, loop)
            for index in statement.indices:
                self._read(index, loop)
            if key(statement.buffer) in self._uses:
                use = self._uses[key(statement.buffer)]
                use.stores += 1
                use.loops.add(loop)
        elif not isinstance(statement, tirx.AllocBuffer):
            self._read(statement, loop)

    def _read(self, x: Any, loop: int) -> None:
        for load in found(x, tvm.ir.TensorLoad):
            if key(load.source) in self._uses:
                use = self._uses[key(load.source)]
                use.loads += 1
                use.loops.add(loop)
        # An address is given to someone.
        for arg in [arg for call in found(x, tvm.ir.Call) for arg in call.args if isinstance(arg, tirx.Var)]:
            self._uses.pop(key(arg), None)

    def _is_inlined(self, store: tirx.BufferStore, value: Any) -> bool:
        use = self._uses.get(key(store.buffer))
        if use is None or use.stores != 1:
            return False
        if isinstance(value, _SAME):
            return True
        return (
            use.loads == 1
            and len(use.loops) == 1
            and all(
                self._root(load.source) not in self._written or self._is_once(load.source)
                for load in found(value, tvm.ir.TensorLoad)
            )
            and not any(_has_effect(call) for call in found(value, tvm.ir.Call))
        )

    def _root(self, buffer: Any) -> int:
        return self._roots.get(key(buffer), key(buffer))

    def _is_once(self, buffer: Any) -> bool:
        use = self._uses.get(key(buffer))
        return use is not None and use.stores == 1

    def _statement(self, statement: Any) -> Any:
        if isinstance(statement, tirx.SeqStmt):
            parts = [made for part in statement.seq if (made := self._statement(part)) is not None]
            if not parts:
                return tirx.Evaluate(0)
            return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)
        if isinstance(statement, tirx.For):
            return tirx.For(
                statement.loop_var, self._value(statement.min), self._value(statement.extent), statement.kind,
                self._whole(statement.body), None, statement.annotations, None,
            )  # fmt: skip
        if isinstance(statement, tirx.IfThenElse):
            condition = self._value(statement.condition)
            other = None if statement.else_case is None else self._whole(statement.else_case)
            return tirx.IfThenElse(condition, self._whole(statement.then_case), other)
        if isinstance(statement, tirx.BufferStore):
            value = self._value(statement.value)
            if self._is_inlined(statement, value):
                self._pending[key(statement.buffer)] = value
                return None
            return tirx.BufferStore(statement.buffer, value, [self._value(i) for i in statement.indices])
        if isinstance(statement, tirx.AllocBuffer):
            return statement
        return self._value(statement)

    def _whole(self, statement: Any) -> Any:
        made = self._statement(statement)
        return tirx.Evaluate(0) if made is None else made

    def _value(self, x: Any) -> Any:
        return structural_map(x, (tvm.ir.TensorLoad, lambda load: self._pending.get(key(load.source), load)))


def _is_scalar(buffer: Any) -> bool:
    return len(buffer.shape) == 1 and int(buffer.shape[0]) == 1


def _has_effect(call: Any) -> bool:
    return str(getattr(call.op, "name", "")) in ("tirx.call_extern", "tirx.call_llvm_intrin")
