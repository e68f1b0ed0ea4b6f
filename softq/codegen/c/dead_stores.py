"""Removal of what a function computes for itself and never uses: LLVM does so too, but C is read by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.codegen.c.terms import pointed_to
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key


@tvm.ir.transform.module_pass(opt_level=0)
def drop_dead_stores(module: tvm.IRModule, context: Any) -> tvm.IRModule:
    """Remove the stores to memory of a function's own that nothing needs, and this memory."""
    return tvm.IRModule({v: f.with_body(_cleaned(f.body)) for v, f in module.functions.items()})


def drop_unused_names(body: Any) -> Any:
    """Return a body without names of values, and of views of memory, that nothing reads."""
    nothing = tirx.Evaluate(0)
    while True:
        read = {key(var) for bind in found(body, tirx.Bind) for var in found(bind.value, tirx.Var)}
        own = {key(x.var) for x in found(body, tirx.Bind)} | {key(x.buffer) for x in found(body, tirx.DeclBuffer)}
        rest = structural_map(body, ((tirx.Bind, lambda _: nothing), (tirx.DeclBuffer, lambda _: nothing)))
        read |= {key(var) for var in found(rest, tirx.Var)}
        read |= {key(var) for view in found(body, tirx.DeclBuffer) for var in found(view.data, tirx.Var)}
        unused = own - read
        if not unused:
            return body
        body = structural_map(
            body,
            (
                (tirx.Bind, lambda x, unused=unused: nothing if key(x.var) in unused else x),
                (tirx.DeclBuffer, lambda x, unused=unused: nothing if key(x.buffer) in unused else x),
            ),
        )


def _cleaned(body: Any) -> Any:
    own = {key(a.buffer): a for a in found(body, tirx.AllocBuffer)}
    views: dict[int, int] = {}
    for view in found(body, tirx.DeclBuffer):
        source = pointed_to(view.data)
        views[key(view.buffer)] = views.get(key(source), key(source))
    uses = _Uses(views)
    uses.collect(body)
    needed = uses.needed(own)
    used = {key(load.source) for load in found(body, tvm.ir.TensorLoad)}
    used |= {key(store.buffer) for store in found(body, tirx.BufferStore)}
    used |= {key(arg) for call in found(body, tvm.ir.Call) for arg in call.args if isinstance(arg, tirx.Var)}

    def is_dead(buffer: Any) -> bool:
        root = views.get(key(buffer), key(buffer))
        return root in own and root not in needed

    nothing = tirx.Evaluate(0)
    cleaned = structural_map(
        body,
        (
            (tirx.BufferStore, lambda s: nothing if is_dead(s.buffer) else s),
            (tirx.AllocBuffer, lambda a: nothing if is_dead(a.buffer) else a),
            (tirx.DeclBuffer, lambda d: nothing if is_dead(d.buffer) or key(d.buffer) not in used else d),
        ),
    )
    return _without_unused_names(cleaned)


def _without_unused_names(body: Any) -> Any:
    """Return a body without values that have a name and are read by nobody."""
    binds = found(body, tirx.Bind)
    read = Counter(key(var) for var in found(body, tirx.Var))
    # A name stands once where it is bound.
    unused = {key(bind.var) for bind in binds if read[key(bind.var)] <= 1 and not found(bind.value, tvm.ir.Call)}
    if not unused:
        return body
    changed = structural_map(body, (tirx.Bind, lambda b: tirx.Evaluate(0) if key(b.var) in unused else b))
    return _without_unused_names(changed)


class _Uses:
    """What each store needs: the memory that its value, its place and the way to it are read from."""

    def __init__(self, views: dict[int, int]) -> None:
        self._views = views
        self._stores: dict[int, set[int]] = {}

    def collect(self, statement: Any, around: frozenset[int] = frozenset()) -> None:
        """Take in a statement, and the memory that decides whether and how often it is reached."""
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                self.collect(part, around)
        elif isinstance(statement, tirx.IfThenElse):
            decides = around | self._read((statement.condition,))
            for part in (statement.then_case, statement.else_case):
                if part is not None:
                    self.collect(part, decides)
        elif isinstance(statement, tirx.For):
            self.collect(statement.body, around | self._read((statement.min, statement.extent)))
        elif isinstance(statement, tirx.AttrStmt):
            self.collect(statement.body, around)
        elif isinstance(statement, tirx.BufferStore):
            read = self._read((statement.value, *statement.indices))
            self._stores.setdefault(self._root(statement.buffer), set()).update(read, around)
        else:
            assert isinstance(statement, (tirx.AllocBuffer, tirx.DeclBuffer, tirx.Evaluate, tirx.Bind)), statement
            # What is done for its effect is needed, and all that it reads.
            self._stores.setdefault(0, set()).update(self._read((statement,)), around)

    def needed(self, own: Iterable[int]) -> set[int]:
        """Return the memory of the function's own that something outside follows from."""
        own = set(own)
        waiting = [root for root in self._stores if root not in own]
        reached: set[int] = set()
        while waiting:
            for other in self._stores.get(waiting.pop(), ()):
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return reached

    def _root(self, buffer: Any) -> int:
        return self._views.get(key(buffer), key(buffer))

    def _read(self, parts: Iterable[Any]) -> set[int]:
        return {self._root(load.source) for part in parts for load in found(part, tvm.ir.TensorLoad)}
