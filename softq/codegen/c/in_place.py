"""Which results of a kernel may take the place of which operands, by the places that it reads and writes, and when.

That is so if each element of the operand is read before the same place of the result is written: within a turn of the
loops around both the text says what comes first, and no two turns go to the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from softq.artifact.firmware.numbers import bits_of
from softq.codegen.c.terms import count, is_address, is_pointer, pointed_to, pointee
from softq.compiler.tir.expressions import found
from softq.compiler.tir.symbolic import key


@dataclass(frozen=True)
class _Use:
    """A place of memory that a kernel reads or writes.

    Attributes:
        root: Key of the parameter that owns the memory.
        is_read: Whether it is read there.
        index: The place.
        loops: The loops around it.
    """

    root: int
    is_read: bool
    index: Any
    loops: tuple[tirx.For, ...]

    def common(self, other: _Use) -> int:
        """Return how many loops are around both."""
        pairs = zip(self.loops, other.loops, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if not a.same_as(b)), min(len(self.loops), len(other.loops)))

    def terms(self) -> list[int] | None:
        """Return how far apart are places of neighbouring turns of each loop, then the place before all of them.

        None if that is no sum of such terms, or a loop has a number of turns that is not known.
        """
        variables = [loop.loop_var for loop in self.loops]
        if not all(isinstance(x, tirx.IntImm) for loop in self.loops for x in (loop.min, loop.extent)):
            return None
        if not variables:
            return [int(self.index)] if isinstance(self.index, tirx.IntImm) else None
        terms = list(tvm.sym.detect_linear_equation(self.index, variables))
        return [int(term) for term in terms] if terms and all(isinstance(t, tirx.IntImm) for t in terms) else None


def replaced_operands(function: tirx.PrimFunc) -> dict[int, frozenset[int]]:
    """Return for each parameter that is a result the operands whose place it may take, by their positions.

    Args:
        function: What `lower` made of a kernel.
    """
    pointers = {key(param): at for at, param in enumerate(function.params) if is_pointer(param)}
    uses, passed = _Uses(function.body), _passed_on(function.body)
    own = {root: [(at, use) for at, use in enumerate(uses.all) if use.root == root] for root in pointers}
    result: dict[int, frozenset[int]] = {}
    for root, at in pointers.items():
        stores = [(number, use) for number, use in own[root] if not use.is_read]
        fitting = frozenset(
            other
            for of, other in pointers.items()
            if stores and own[of] and other != at and not passed & (uses.names(root) | uses.names(of))
            and bits_of(pointee(function.params[other])) == bits_of(pointee(function.params[at]))
            and all(use.is_read for _, use in own[of])
            and all(_is_before(load, store) for load in own[of] for store in stores)
        )  # fmt: skip
        if fitting:
            result[at] = fitting
    return result


def _passed_on(body: Any) -> set[int]:
    """Return the keys of what others are given addresses of, and of views that begin inside."""
    given = [arg for call in found(body, tvm.ir.Call) if _has_effect(call) for arg in call.args]
    passed = {key(of) for arg in given if (of := pointed_to(arg)) is not None}
    return passed | {key(view.buffer) for view in found(body, tirx.DeclBuffer) if is_address(view.data)}


class _Uses:
    """What a kernel does with memory, in the order of its text: what a statement reads is before what it writes."""

    def __init__(self, body: Any) -> None:
        self._roots: dict[int, int] = {}
        for view in found(body, tirx.DeclBuffer):
            of = pointed_to(view.data)
            self._roots[key(view.buffer)] = self._roots.get(key(of), key(of))
        stores = [store.buffer for store in found(body, tirx.BufferStore)]
        names = [key(buffer) for buffer in stores]
        own = {key(a.buffer) for a in found(body, tirx.AllocBuffer) if count(a.buffer) == 1}
        self._names = {name for name in own if names.count(name) == 1}
        self._bound: dict[int, Any] = {}
        self._stored: dict[int, Any] = {}
        self.all: list[_Use] = []
        self._walk(body, ())

    def names(self, root: int) -> set[int]:
        """Return the keys of all views of a parameter's memory."""
        return {root, *(view for view, of in self._roots.items() if of == root)}

    def _walk(self, statement: Any, loops: tuple[tirx.For, ...]) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                self._walk(part, loops)
        elif isinstance(statement, tirx.For):
            self._read((statement.min, statement.extent), loops)
            self._walk(statement.body, (*loops, statement))
        elif isinstance(statement, tirx.IfThenElse):
            self._read((statement.condition,), loops)
            for part in (statement.then_case, statement.else_case):
                if part is not None:
                    self._walk(part, loops)
        elif isinstance(statement, tirx.AttrStmt):
            self._walk(statement.body, loops)
        elif isinstance(statement, tirx.BufferStore):
            self._read((statement.value, *statement.indices), loops)
            if key(statement.buffer) in self._names:
                self._stored[key(statement.buffer)] = self._meant(statement.value)
            self._add(statement.buffer, statement.indices, loops, is_read=False)
        elif isinstance(statement, tirx.Bind):
            self._read((statement.value,), loops)
            self._bound[key(statement.var)] = self._meant(statement.value)
        else:
            assert isinstance(statement, (tirx.AllocBuffer, tirx.DeclBuffer, tirx.Evaluate)), statement
            self._read((statement,), loops)

    def _read(self, parts: Sequence[Any], loops: tuple[tirx.For, ...]) -> None:
        for part in parts:
            for load in found(part, tvm.ir.TensorLoad):
                self._add(load.source, load.indices, loops, is_read=True)

    def _add(self, buffer: Any, indices: Sequence[Any], loops: tuple[tirx.For, ...], *, is_read: bool) -> None:
        root = self._roots.get(key(buffer), key(buffer))
        self.all.append(_Use(root, is_read, self._meant(indices[0]), loops))

    def _meant(self, x: Any) -> Any:
        """Return an expression with what names stand for."""
        return structural_map(
            x,
            (
                (tirx.Var, lambda var: self._bound.get(key(var), var)),
                (tvm.ir.TensorLoad, lambda load: self._stored.get(key(load.source), load)),
            ),
        )


def _is_before(load: tuple[int, _Use], store: tuple[int, _Use]) -> bool:
    """Say whether a place is read before it is written, in all turns."""
    (at, read), (behind, written) = load, store
    common = read.common(written)
    a, b = read.terms(), written.terms()
    if at > behind or a is None or b is None or a[:common] != b[:common]:
        return False
    low, high = zip(_range(a, read, common), _range(b, written, common), strict=True)
    reach = max(high) - min(low)
    around = [(abs(term), int(loop.extent)) for term, loop in zip(a[:common], read.loops[:common], strict=True)]
    for step, turns in sorted(around):
        if turns > 1 and step <= reach:
            return False
        reach += step * (turns - 1)
    return True


def _range(terms: Sequence[int], use: _Use, common: int) -> tuple[int, int]:
    """Return the least and the greatest place in one turn of the loops that are around both."""
    low = high = terms[-1]
    for term, loop in zip(terms[common:-1], use.loops[common:], strict=True):
        ends = [term * int(loop.min), term * (int(loop.min) + int(loop.extent) - 1)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _has_effect(call: Any) -> bool:
    return str(getattr(call.op, "name", "")) in ("tirx.call_extern", "tirx.call_llvm_intrin")
