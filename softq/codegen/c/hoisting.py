"""Loops whose turns do not touch memory for what stays the same: in C a store to a tensor might change any other one.

LLVM is told that a kernel's pointers do not overlap. In C the memory of steps is of types that may alias, since an
arena is shared, so that a compiler would read, divide and take roots again in each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_map

from softq.codegen.c.terms import pointed_to
from softq.compiler.tir.expressions import found, mentions
from softq.compiler.tir.symbolic import key

_EFFECTS = ("tirx.call_extern", "tirx.call_llvm_intrin")
_LAZY = ("prim.if_then_else",)
_PARTS = ("a", "b", "value")


@tvm.ir.transform.module_pass(opt_level=0)
def hoist_invariants(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Let loops of a known number of turns sum up in variables, and compute before them what no turn changes."""
    return tvm.IRModule({v: f.with_body(_Hoisting(f.body).statement(f.body)) for v, f in module.functions.items()})


class _Hoisting:
    def __init__(self, body: Any) -> None:
        self._roots: dict[int, int] = {}
        for view in found(body, tirx.DeclBuffer):
            of = pointed_to(view.data)
            self._roots[key(view.buffer)] = self._root(of)

    def _root(self, buffer: Any) -> int:
        return self._roots.get(key(buffer), key(buffer))

    def statement(self, statement: Any) -> Any:
        """Return a statement whose loops are changed, the innermost first."""
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(part) for part in statement.seq])
        if isinstance(statement, tirx.IfThenElse):
            other = None if statement.else_case is None else self.statement(statement.else_case)
            return tirx.IfThenElse(statement.condition, self.statement(statement.then_case), other)
        if not isinstance(statement, tirx.For):
            return statement
        loop = _with_body(statement, self.statement(statement.body))
        turns = loop.extent
        if not isinstance(turns, tirx.IntImm) or int(turns) < 1 or any(map(_has_effect, found(loop.body, tvm.ir.Call))):
            return loop
        before: list[Any] = []
        after: list[Any] = []
        loop = self._sum_in_variables(loop, before, after)
        loop = self._compute_before(loop, before)
        parts = [*before, loop, *after]
        return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)

    def _written(self, loop: tirx.For) -> set[int]:
        return {self._root(store.buffer) for store in found(loop.body, tirx.BufferStore)}

    def _stays(self, x: Any, loop: tirx.For, written: set[int]) -> bool:
        """Say whether an expression has the same value in all turns."""
        inner = [inside.loop_var for inside in found(loop.body, tirx.For)]
        bound = [bind.var for bind in found(loop.body, tirx.Bind)]
        own = _declared(loop)
        return not any(mentions(x, var) for var in (loop.loop_var, *inner, *bound)) and not any(
            self._root(load.source) in written or key(load.source) in own for load in found(x, tvm.ir.TensorLoad)
        )

    def _sum_in_variables(self, loop: tirx.For, before: list[Any], after: list[Any]) -> tirx.For:
        stores = [part for part in _parts(loop.body) if isinstance(part, tirx.BufferStore)]
        written, views = self._written(loop), _declared(loop)
        own = {key(a.buffer) for a in found(loop.body, tirx.AllocBuffer)}
        for store in stores:
            buffer, place = store.buffer, list(store.indices)
            root = self._root(buffer)
            uses = [(x.buffer, x.indices) for x in found(loop.body, tirx.BufferStore)]
            uses += [(x.source, x.indices) for x in found(loop.body, tvm.ir.TensorLoad)]
            mine = [(b, i) for b, i in uses if self._root(b) == root]
            if (
                _is_scalar(buffer) or root in own or key(buffer) in views or len(mine) < 2
                or not self._stays(place[0], loop, written)
                or not all(key(b) == key(buffer) and structural_equal(i[0], place[0]) for b, i in mine)
            ):  # fmt: skip
                continue
            sum_ = tirx.decl_buffer((1,), str(buffer.dtype), f"{buffer.name}_sum", scope="local")
            before += [tirx.AllocBuffer(sum_), tirx.BufferStore(sum_, tirx.BufferLoad(buffer, place), [0])]
            after.append(tirx.BufferStore(buffer, tirx.BufferLoad(sum_, [0]), place))
            loop = _with_body(loop, _moved(loop.body, buffer, sum_))
            written = self._written(loop)
        return loop

    def _compute_before(self, loop: tirx.For, before: list[Any]) -> tirx.For:
        written = self._written(loop)
        kept: list[tuple[Any, Any]] = []
        parts: list[Any] = []
        for part in _parts(loop.body):
            if isinstance(part, tirx.BufferStore):
                value = self._kept(part.value, lambda x: self._stays(x, loop, written), kept)
                part = tirx.BufferStore(part.buffer, value, part.indices)
            parts.append(part)
        for value, variable in kept:
            before += [tirx.AllocBuffer(variable), tirx.BufferStore(variable, value, [0])]
        return _with_body(loop, parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)) if kept else loop

    def _kept(self, x: Any, stays: Callable[[Any], bool], kept: list[tuple[Any, Any]]) -> Any:
        """Return an expression with variables in the place of the greatest parts of it that read memory and stay."""
        loads = found(x, tvm.ir.TensorLoad)
        if not loads or all(_is_scalar(load.source) for load in loads):
            return x
        if stays(x):
            for value, variable in kept:
                if structural_equal(value, x):
                    return tirx.BufferLoad(variable, [0])
            variable = tirx.decl_buffer((1,), str(x.ty.dtype), "kept", scope="local")
            kept.append((x, variable))
            return tirx.BufferLoad(variable, [0])
        if isinstance(x, tirx.Cast):
            return tirx.Cast(str(x.ty.dtype), self._kept(x.value, stays, kept))
        if isinstance(x, (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)):
            return type(x)(self._kept(x.a, stays, kept), self._kept(x.b, stays, kept))
        return x


def _declared(loop: tirx.For) -> set[int]:
    """Return the views that each turn has of its own: they begin where its own number says."""
    return {key(view.buffer) for view in found(loop.body, tirx.DeclBuffer)}


def _parts(body: Any) -> Iterator[Any]:
    """Yield the statements that every turn comes to."""
    for part in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        if isinstance(part, tirx.SeqStmt):
            yield from _parts(part)
        else:
            yield part


def _with_body(loop: tirx.For, body: Any) -> tirx.For:
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, loop.annotations, None)


def _moved(body: Any, buffer: Any, variable: Any) -> Any:
    """Return statements in which a variable stands for all that they use of a buffer."""
    return structural_map(
        body,
        (
            (tvm.ir.TensorLoad, lambda x: tirx.BufferLoad(variable, [0]) if key(x.source) == key(buffer) else x),
            (
                tirx.BufferStore,
                lambda x: tirx.BufferStore(variable, x.value, [0]) if key(x.buffer) == key(buffer) else x,
            ),
        ),
    )


def _is_scalar(buffer: Any) -> bool:
    return len(buffer.shape) == 1 and isinstance(buffer.shape[0], tirx.IntImm) and int(buffer.shape[0]) == 1


def _has_effect(call: Any) -> bool:
    return str(getattr(call.op, "name", "")) in _EFFECTS
