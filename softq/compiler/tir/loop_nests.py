"""A fused TIR function as kernels: one for each loop nest, with plain pointers, over a range of work items.

TVM's functions hold several nests one after another (the sum, the mean and the quotient of a normalization) and
allocate what lies between them. Here each nest becomes a kernel of its own, or one with the nests before it that go
over the same items (`loop_fusion`); what lies between becomes a tensor of the caller's, and the outermost loop over
independent elements becomes the range of work items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx.buffer import is_buffer_var

from softq.artifact.machine import Machine
from softq.compiler.tir.expressions import found
from softq.compiler.tir.loop_fusion import ITEMS, fuse_loops
from softq.compiler.tir.partial_sums import with_partial_sums
from softq.compiler.tir.simplification import simplify
from softq.compiler.tir.symbolic import Dim, key, plain
from softq.compiler.tvm_errors import is_of_tvm

# So many elements make a work item, where there are more: items are numbered over the axes before them, and finding
# an element's place from its number takes a division for each axis.
_SHORT = 64

# An inner loop of so many elements can be made of vectors.
_LANES = 16

# By so many nodes an expression may grow when what it reads is written into it; a sigmoid has about 100.
_GROWTH = 512

# A formula of more nodes is not written into another one: TVM's passes take long for a few that are nested.
_LONG = 300


@dataclass(frozen=True)
class Nest:
    """A kernel.

    Attributes:
        function: Takes pointers to `buffers`, the values of `scalars`, and the range of work items.
        buffers: For each pointer the position of the original function's parameter, or the buffer that the original
            allocates.
        scalars: The variables of the original function whose values it takes, in its own int types.
        items: Number of work items.
    """

    function: tirx.PrimFunc
    buffers: tuple[int | tirx.Var, ...]
    scalars: tuple[tirx.Var, ...]
    items: Dim


@dataclass(frozen=True)
class Elements:
    """A nest that writes each element of each row once.

    Attributes:
        row: The loop over rows, which are the work items.
        column: The loop over the elements of a row.
        store: What is written.
        owner: By the key of a buffer what it is: see `Nest.buffers`.
    """

    row: tirx.For
    column: tirx.For
    store: tirx.BufferStore
    owner: Mapping[int, int | tirx.Var]


def elements_of(nest: Nest) -> Elements | None:
    """Return the parts of a nest that is two loops and one store, or None for another one."""
    body = nest.function.body
    *declared, row = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    column = row.body if isinstance(row, tirx.For) else None
    store = column.body if isinstance(column, tirx.For) else None
    if not all(isinstance(s, tirx.DeclBuffer) for s in declared) or not isinstance(store, tirx.BufferStore):
        return None
    owner = {key(d.buffer): at for d, at in zip(declared, nest.buffers, strict=True)}
    return Elements(row, column, store, owner)


def nests(function: tirx.PrimFunc, symbol: str, machine: Machine, *, rows: bool = False) -> list[Nest]:
    """Return the kernels of a function, in the order in which they run.

    Args:
        function: Its parameters are buffers, then scalars.
        symbol: Name of the kernels; the second and later ones get a number behind it.
        machine: What they are for.
        rows: Whether a work item of an elementwise nest is a row of its result, however long that is.
    """
    lowered = _lower(_schedule(function, rows, machine.single_items))
    declared: dict[int, tirx.DeclBuffer] = {}
    kernels: list[Nest] = []
    statements = lowered.body.seq if isinstance(lowered.body, tirx.SeqStmt) else [lowered.body]
    for statement in fuse_loops(statements):
        if isinstance(statement, tirx.DeclBuffer):
            declared[key(statement.buffer)] = statement
        elif not isinstance(statement, tirx.AllocBuffer):
            name = symbol if not kernels else f"{symbol}_part{len(kernels)}"
            kernels.append(_nest(lowered, with_partial_sums(statement, machine), declared, name))
    return kernels


def _schedule(function: tirx.PrimFunc, rows: bool, single: bool) -> tirx.PrimFunc:
    schedule = s_tir.Schedule(function)
    root = schedule.get_sblock("root")
    for block in schedule.get_child_blocks(root):
        if _is_cheap(schedule, root, block):
            try:
                schedule.compute_inline(block)
            except s_tir.schedule.ScheduleError:
                continue  # It writes an output, or is read at other places than it is written.
    for block in schedule.get_child_blocks(root):
        loops, kinds = schedule.get_loops(block), [int(v.iter_type) for v in schedule.get(block).iter_vars]
        if len(loops) != len(kinds):
            continue  # A nest that TVM did not make of one compute statement: it stays one work item.
        reduced = [i for i, kind in enumerate(kinds) if kind != tirx.IterVar.DataPar]
        spatial = loops[: reduced[0]] if reduced else loops
        if any(kind == tirx.IterVar.DataPar for kind in kinds[len(spatial) :]):
            continue
        if not spatial:
            if reduced:
                # A loop of no rounds would leave out the first value, which TVM sets in the first round.
                schedule.decompose_reduction(block, loops[0])
            continue
        if not reduced and not single:
            spatial = spatial[: len(spatial) - (1 if rows else _inner(schedule, block, spatial))]
            if not spatial:
                continue  # One row is one work item.
        outer = _fuse(schedule, spatial)
        schedule.annotate(outer, ITEMS, 1)
        if reduced:
            schedule.decompose_reduction(block, loops[reduced[0]])
    return schedule.mod["main"]


def _fuse(schedule: s_tir.Schedule, loops: Sequence[Any]) -> Any:
    """Return the loop over work items: as many of the first loops as TVM can fuse."""
    for count in range(len(loops), 1, -1):
        try:
            return schedule.fuse(*loops[:count])
        except Exception as error:
            if not is_of_tvm(error):
                raise
    return loops[0]


def _inner(schedule: s_tir.Schedule, block: Any, loops: Sequence[Any]) -> int:
    """Return how many of the last loops are within a work item."""
    extents, elements = [plain(schedule.get(loop).extent) for loop in loops], 1
    if _same_places(schedule.get(block)):
        # One loop over all elements, whatever the axes, unless the last one is long enough for vectors.
        return int(len(loops) > 1 and (not isinstance(extents[-1], int) or extents[-1] >= _LANES))
    for count, extent in enumerate(reversed(extents[1:]), start=1):
        if not isinstance(extent, int):
            return count
        elements *= extent
        if elements >= _SHORT:
            return count
    return len(loops) - 1


def _same_places(block: s_tir.SBlock) -> bool:
    """Say whether every element is made of those that stand at its own place in their tensors."""
    own = [v.var for v in block.iter_vars]
    stores = [store.indices for store in found(block.body, tirx.BufferStore)]
    loads = [load.indices for load in found(block.body, tvm.ir.TensorLoad)]
    return all(
        len(indices) == len(own) and all(index.same_as(var) for index, var in zip(indices, own, strict=True))
        for indices in [*stores, *loads]
    )


def _is_cheap(schedule: s_tir.Schedule, root: Any, candidate: Any) -> bool:
    """Say whether a block may be computed again wherever it is read.

    An expression that is read twice is there twice afterwards: without a limit a chain of n squares has 2^n factors.
    """
    block = schedule.get(candidate)
    if any(int(v.iter_type) != tirx.IterVar.DataPar for v in block.iter_vars) or len(block.writes) != 1:
        return False
    written, size, uses, reader = block.writes[0].source, len(found(block.body, tvm.ir.Expr)), 0, 0
    for other in schedule.get_child_blocks(root):
        loads = sum(load.source.same_as(written) for load in found(schedule.get(other).body, tvm.ir.TensorLoad))
        if loads:
            uses, reader = uses + loads, max(reader, len(found(schedule.get(other).body, tvm.ir.Expr)))
    return (uses - 1) * size <= _GROWTH and min(size, reader) <= _LONG


def _lower(function: tirx.PrimFunc) -> tirx.PrimFunc:
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        simplify(),
        # What was computed again in two places binds its names in both.
        tirx.transform.ConvertSSA(),
    ]
    return tvm.ir.transform.Sequential(passes)(tvm.IRModule({"main": function}))["main"]


def _nest(original: tirx.PrimFunc, statement: tirx.Stmt, declared: Mapping[int, tirx.DeclBuffer], symbol: str) -> Nest:
    buffers, pointers, body = with_pointers(original, statement, declared)
    begin, end = tirx.Var("begin", "int64"), tirx.Var("end", "int64")
    items: Dim = 1
    if isinstance(statement, tirx.For) and ITEMS in statement.annotations:
        items = plain(statement.extent)
        loop = statement.loop_var
        first, count = begin, end - begin
        if str(loop.ty) != "int64" and str(loop.dtype) != "int64":
            first, count = begin.astype(loop.dtype), count.astype(loop.dtype)
        statement = tirx.For(loop, first, count, tirx.ForKind.SERIAL, statement.body)
    else:
        statement = tirx.For(tirx.Var("once", "int64"), begin, end - begin, tirx.ForKind.SERIAL, statement)
    whole = tirx.SeqStmt([*body, statement])
    known = [*pointers, begin, end]
    scalars = numbers_of(whole, known)
    kernel = tirx.PrimFunc([*pointers, *scalars, begin, end], whole)
    kernel = kernel.with_attr("global_symbol", symbol).with_attr("tirx.noalias", True).with_attr("s_tir", True)
    return Nest(kernel, tuple(buffers), tuple(scalars), items)


def with_pointers(
    original: tirx.PrimFunc, statement: tirx.Stmt, declared: Mapping[int, tirx.DeclBuffer]
) -> tuple[list[int | tirx.Var], list[tirx.Var], list[tirx.Stmt]]:
    """Return the buffers that a statement uses, as `Nest` has them, plain pointers in their place, and declarations."""
    params = {key(param): position for position, param in enumerate(original.params)}
    buffers: list[int | tirx.Var] = []
    pointers: list[tirx.Var] = []
    body: list[tirx.Stmt] = []
    for var in tirx.analysis.undefined_vars(statement):
        if not is_buffer_var(var):
            continue
        source = declared[key(var)].data if key(var) in declared else var
        source = source.args[0] if isinstance(source, tvm.ir.Call) else source
        # What is no parameter is a buffer that the original allocates.
        buffers.append(params.get(key(source), var))
        pointer = tirx.Var(f"p{len(pointers)}", tvm.ir.PointerType(tvm.ir.PrimType(str(var.dtype))))
        body.append(tirx.DeclBuffer(var, data=pointer))
        pointers.append(pointer)
    return buffers, pointers, body


def numbers_of(statement: tirx.Stmt, known: Sequence[tirx.Var]) -> list[tirx.Var]:
    """Return the variables of a statement that are neither known nor memory."""
    return [
        v
        for v in tirx.analysis.undefined_vars(statement, known)
        if not is_buffer_var(v) and not isinstance(v.ty, tvm.ir.PointerType)
    ]
