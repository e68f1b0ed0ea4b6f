"""Loop nests over the same items made one: a row is read, summed and written while it is in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_equal

from softq.compiler.tir.expressions import found, substitute
from softq.compiler.tir.symbolic import key, plain

ITEMS = "softq.items"
"""The annotation of a loop over independent items."""


def fuse_loops(statements: Sequence[tirx.Stmt]) -> list[tirx.Stmt]:
    """Return a function's statements, neighbouring nests made one where an item needs nothing of another one."""
    result: list[tirx.Stmt] = []
    for statement in statements:
        one = _fuse(result[-1], statement) if result else None
        if one is None:
            result.append(statement)
        else:
            result[-1] = one
    return result


def _fuse(first: tirx.Stmt, second: tirx.Stmt) -> tirx.Stmt | None:
    if not all(isinstance(s, tirx.For) and ITEMS in s.annotations for s in (first, second)):
        return None
    if not structural_equal(first.extent, second.extent) or str(first.loop_var.ty) != str(second.loop_var.ty):
        return None
    item = first.loop_var
    body = substitute(second.body, {second.loop_var: item})
    if not _independent(first.body, body, item):
        return None
    both = [part for s in (first.body, body) for part in (s.seq if isinstance(s, tirx.SeqStmt) else [s])]
    return tirx.For(item, first.min, first.extent, first.kind, tirx.SeqStmt(both), annotations=first.annotations)


def _independent(first: tirx.Stmt, second: tirx.Stmt, item: tirx.Var) -> bool:
    """Say whether an item of the second nest touches only what the same item of the first one has written."""
    written, ranges = _accesses(first, tirx.BufferStore), tvm.sym.Analyzer()
    for part in (first, second):
        for loop in found(part, tirx.For):
            extent = plain(loop.extent)
            if isinstance(extent, int):
                ranges.update(loop.loop_var, tvm.sym.ConstIntBound(0, max(extent - 1, 0)))
    touched = _accesses(second, tirx.BufferStore, tvm.ir.TensorLoad)
    for buffer in written.keys() & touched.keys():
        parts = {_part(index, item, ranges) for index in [*written[buffer], *touched[buffer]]}
        if len(parts) != 1 or None in parts:
            return False
    return True


def _accesses(statement: tirx.Stmt, *kinds: type) -> dict[int, list[Any]]:
    """Return the indices at which each buffer is read or written."""
    indices: dict[int, list[Any]] = {}
    for kind in kinds:
        for access in found(statement, kind):
            buffer = access.buffer if kind is tirx.BufferStore else access.source
            indices.setdefault(key(buffer), []).append(access.indices[0])
    return indices


def _part(index: Any, item: tirx.Var, ranges: tvm.sym.Analyzer) -> int | None:
    """Return n where an index lies in [item n, item n + n), else None."""
    step = tvm.sym.detect_linear_equation(index, [item])
    size = plain(step[0]) if len(step) == 2 else None
    if not isinstance(size, int) or size < 1:
        return None
    bound = ranges.const_int_bound(step[1])
    return size if bound.min_value >= 0 and bound.max_value < size else None
