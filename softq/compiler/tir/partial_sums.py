"""Sums along a row as vectors of partial sums, and its greatest or least element in the same way.

A sum of floats has an order, which a compiler keeps: one addition waits for the one before. Here a loop that adds to
one number becomes one over several vectors, which are added to each other in the end. The order is fixed by the machine
and the length, so that results are the same in every run and for every number of threads. A greatest element has no
order, but one that is NaN if any is (`legalize.min_max`) is a chain of selections, which a compiler keeps too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm_ffi.structural import structural_equal, structural_map

from softq.artifact.machine import Machine
from softq.compiler.tir.expressions import found, mentions, substitute
from softq.compiler.tir.symbolic import plain

# Additions take three or four cycles, and two may begin in each.
_VECTORS = 4


@dataclass(frozen=True)
class _Kind:
    """How two floats become one, and the float that changes none."""

    combine: Callable[[Any, Any], Any]
    neutral: float


_SUM = _Kind(lambda a, b: a + b, 0.0)
_GREATEST = _Kind(lambda a, b: tirx.Select(tirx.Or(b < a, tirx.isnan(a)), a, b), -np.inf)
_LEAST = _Kind(lambda a, b: tirx.Select(tirx.Or(a < b, tirx.isnan(a)), a, b), np.inf)


def with_partial_sums(statement: tirx.Stmt, machine: Machine) -> tirx.Stmt:
    """Return a statement of which the loops that add floats in consecutive places do so by vectors.

    So do those that look for the greatest or the least one.
    """
    return structural_map(statement, (tirx.For, lambda loop: _by_vectors(loop, machine)))


def _by_vectors(loop: tirx.For, machine: Machine) -> tirx.Stmt:
    store = loop.body
    parts = _parts(store.value) if isinstance(store, tirx.BufferStore) else None
    if parts is None or int(plain(loop.min)):
        return loop
    kind, total, term = parts
    dtype, k, extent = str(store.value.ty.dtype), loop.loop_var, plain(loop.extent)
    if dtype not in ("float32", "float64") or not _is_element(total, store) or not _in_a_row(term, store, k):
        return loop
    lanes = machine.lanes(int(dtype.removeprefix("float")))
    if lanes < 2 or (isinstance(extent, int) and extent < 2 * lanes):
        return loop
    vectors = _VECTORS if not isinstance(extent, int) else min(_VECTORS, extent // lanes)
    return _Sum(store, kind, term, k, loop.extent, dtype, lanes, vectors).statement()


def _parts(value: Any) -> tuple[_Kind, Any, Any] | None:
    """Return how a value is made of a total and of what is added to it, and these two; None if it is not."""
    if isinstance(value, tirx.Add):
        return _SUM, value.a, value.b
    if not isinstance(value, tirx.Select) or not isinstance(value.condition, tirx.Or):
        return None
    better, unordered = value.condition.a, value.condition.b
    total, term = value.true_value, value.false_value
    if not isinstance(better, tirx.LT) or not structural_equal(unordered, tirx.isnan(total)):
        return None
    for kind, pair in ((_GREATEST, [term, total]), (_LEAST, [total, term])):
        if structural_equal([better.a, better.b], pair):
            return kind, total, term
    return None


def _is_element(load: Any, store: tirx.BufferStore) -> bool:
    if not isinstance(load, tvm.ir.TensorLoad) or not load.source.same_as(store.buffer):
        return False
    return structural_equal(list(load.indices), list(store.indices))


def _in_a_row(term: Any, store: tirx.BufferStore, k: tirx.Var) -> bool:
    """Say whether what is added lies in consecutive places, or does not depend on the position, and is not the sum."""
    fine = [not mentions(index, k) for index in store.indices]

    for load in found(term, tvm.ir.TensorLoad):
        fine.append(not load.source.same_as(store.buffer))
        for index in load.indices:
            step = tvm.sym.detect_linear_equation(index, [k])
            fine.append(len(step) == 2 and plain(step[0]) in (0, 1))
    return all(fine)


class _Sum:
    def __init__(
        self,
        store: tirx.BufferStore,
        kind: _Kind,
        term: Any,
        k: tirx.Var,
        extent: Any,
        dtype: str,
        lanes: int,
        vectors: int,
    ) -> None:
        self.store, self.kind, self.term, self.k, self.extent = store, kind, term, k, extent
        self.dtype, self.lanes, self.vectors = dtype, lanes, vectors
        self.index = str(k.ty.dtype)
        self.parts = tirx.decl_buffer((lanes * vectors,), dtype, "parts", scope="local")

    def number(self, value: int) -> Any:
        return tirx.IntImm(self.index, value)

    def statement(self) -> tirx.Stmt:
        chunk, lanes = self.lanes * self.vectors, self.lanes
        whole = tirx.truncdiv(self.extent, self.number(chunk))
        rest = tirx.truncdiv(tirx.truncmod(self.extent, self.number(chunk)), self.number(lanes))
        done = whole * self.number(chunk)
        after = done + rest * self.number(lanes)
        neutral = tirx.Broadcast(tirx.const(self.kind.neutral, self.dtype), lanes)
        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(self.parts),
                *(self._put(v * lanes, lanes, neutral) for v in range(self.vectors)),
                self._loop(whole, lambda i: [self._add(v, i * self.number(chunk)) for v in range(self.vectors)]),
                self._loop(rest, lambda i: [self._add(0, done + i * self.number(lanes))]),
                *self._together(),
                self._loop(self.extent - after, lambda i: [self._to_total(self._term(after + i))]),
            ]
        )

    def _loop(self, extent: Any, body: Any) -> tirx.Stmt:
        var = tirx.Var("i", self.index)
        statements = body(var)
        whole = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
        return tirx.For(var, self.number(0), extent, tirx.ForKind.SERIAL, whole)

    def _term(self, position: Any) -> Any:
        return substitute(self.term, {self.k: position})

    def _add(self, vector: int, first: Any) -> tirx.Stmt:
        lane = tirx.Var("lane", self.index)
        at = self.number(vector * self.lanes) + lane
        value = self.kind.combine(self.parts[at], self._term(first + self.number(vector * self.lanes) + lane))
        body = tirx.BufferStore(self.parts, value, [at])
        return tirx.For(lane, self.number(0), self.number(self.lanes), tirx.ForKind.VECTORIZED, body)

    def _at(self, start: int, count: int) -> Any:
        return self.number(start) if count == 1 else tirx.Ramp(self.number(start), self.number(1), count)

    def _put(self, start: int, count: int, value: Any) -> tirx.Stmt:
        return tirx.BufferStore(self.parts, value, [self._at(start, count)])

    def _together(self) -> list[tirx.Stmt]:
        """Return the statements that add all vectors, then the halves of what is left, then to the total."""
        parts: list[tirx.Stmt] = []
        count = self.vectors
        while count > 1:
            half = (count + 1) // 2
            for v in range(count - half):
                parts.append(self._sum(v * self.lanes, (half + v) * self.lanes, self.lanes))
            count = half
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            parts.append(self._sum(0, lanes, lanes))
        return [*parts, self._to_total(self.parts[self.number(0)])]

    def _sum(self, a: int, b: int, count: int) -> tirx.Stmt:
        both = (self.parts[self._at(start, count)] for start in (a, b))
        return self._put(a, count, self.kind.combine(*both))

    def _to_total(self, value: Any) -> tirx.Stmt:
        total = self.store.buffer[tuple(self.store.indices)]
        return tirx.BufferStore(self.store.buffer, self.kind.combine(total, value), list(self.store.indices))
