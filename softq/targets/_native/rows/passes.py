"""One pass over the row: whole vectors, a last one that overlaps, and rows shorter than a vector.

The last vector of a row that is no multiple of the lanes begins so many elements early that it ends with the row. It is
computed before all others and written behind them: an output row may hold values that this pass reads. Reductions
that must not count an element twice take in the lanes that no other vector has. So every lane is an element of the row:
proofs hold, and table positions are inside their tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.rowprog.phases import Phase
from softq.rowprog.program import Node
from softq.rowprog.types import DType
from softq.targets._native.rows import carriers, floats, scans
from softq.targets._native.rows.emission import Emission, Kernel
from softq.targets._native.rows.memory import Place
from softq.targets._native.rows.reductions import Accumulators, of_empty_row
from softq.targets._native.rows.tir import (
    BOOL,
    F32,
    Local,
    Memory,
    broadcast,
    cast,
    const,
    lane_numbers,
    opaque,
    reinterpret,
    type_name,
)  # fmt: skip

_TRIVIAL = 7
"""Operators up to which a pass is taken for one that LLVM could see to be a copy or a constant; hiding costs 5 %."""

Write = tuple[Memory, Expr]


@dataclass(frozen=True)
class Row:
    """The memory of the row at hand.

    Attributes:
        scores: The scores and the position of the row in them.
        valid: The same of the mask, and whether its elements differ along the row; None without a mask.
        outputs: The row outputs by name.
        places: Where stored values stand.
        scratch: Rows of scratch by number.
    """

    scores: Write
    valid: tuple[Memory, Expr, Expr] | None
    outputs: Mapping[str, Write]
    places: Mapping[Node, Place]
    scratch: Sequence[Write]

    def stored(self, node: Node) -> Write:
        """Return the memory of a stored value."""
        place = self.places[node]
        return self.scratch[place.slot] if place.output is None else self.outputs[place.output]


@dataclass(frozen=True)
class Overlap:
    """How the last vector differs from the others.

    Attributes:
        counted: Which lanes no other vector has.
        held: What is to be written, in the order of the writes.
    """

    counted: Local
    held: Sequence[Local]


class Pass:
    """The emitter of one pass.

    Args:
        kernel: What the whole kernel shares.
        phase: What the pass computes.
        row: The memory of the row.
        scalars: Where the row's scalars are.
        outputs: The output of each name that the pass writes.
    """

    def __init__(self, kernel: Kernel, phase: Phase, row: Row, scalars: Emission, outputs: Mapping[str, Node]) -> None:
        self._kernel, self._phase, self._row, self._scalars = kernel, phase, row, scalars
        self._outputs = {name: outputs[name] for name in phase.outputs}
        self._scan_groups = scans.group([*phase.rows, *phase.reductions])
        self._scans: list[scans.Scan] = []
        self._reduced = [node for node in phase.reductions if node.op != "scan"]
        used = (*phase.loads, *phase.rows, *self._outputs.values())
        self._bits = carriers.width(used, self._reduced, kernel.proof)
        has_floats = any(node.dtype.is_float for node in (*used, *self._reduced))
        self._lanes = 1 if self._scan_groups else kernel.processor.lanes(self._bits, has_floats)

    def emit(self) -> None:
        """Emit the pass; the results of its reductions are scalars then."""
        index, length = self._kernel.index, self._kernel.length
        results = {node: Local.empty(type_name(node.dtype), 1) for node in self._reduced}
        self._scans = [scans.Scan(nodes, self._scalars) for nodes in self._scan_groups]
        for node, local in results.items():
            local.set(const(of_empty_row(node), local.name))
        if self._lanes == 1:
            with script.If(tirx.LT(tirx.const(0, index), length)), script.Then():
                self._one_by_one(results)
            return self._bind(results)
        with script.If(tirx.LE(tirx.const(self._lanes, index), length)):
            with script.Then():
                self._vectors(results)
            with script.Else(), script.If(tirx.LT(tirx.const(0, index), length)), script.Then():
                self._one_by_one(results)
        return self._bind(results)

    def _bind(self, results: Mapping[Node, Local]) -> None:
        for node, local in results.items():
            self._scalars.bind(node, local)
        for loop in self._scans:
            loop.finish()

    def _one_by_one(self, results: Mapping[Node, Local]) -> None:
        place = Emission(self._kernel, self._scalars, bits=self._bits)
        sums = [Accumulators(node, place, 1) for node in self._reduced]
        loops = self._scans
        with script.serial(self._kernel.length) as j:
            self._body(j, 1, 0, sums, loops)
        for s in sums:
            results[s.node].set(s.result())

    def _vectors(self, results: Mapping[Node, Local]) -> None:
        index, lanes, length = self._kernel.index, self._lanes, self._kernel.length
        count = self._kernel.processor.unroll
        place = Emission(self._kernel, self._scalars, lanes=lanes, bits=self._bits)
        sums = [Accumulators(node, place, count) for node in self._reduced]

        def number(value: int) -> Expr:
            return tirx.const(value, index)

        rest = Local.of(script.bitwise_and(length, number(lanes - 1)), index, 1)
        overlaps = tirx.LT(number(0), rest.get())
        start = Local.of(tirx.Sub(length, number(lanes)), index, 1).get()
        held = [Local.empty(memory.name, lanes) for _, (memory, _) in self._writes()]
        with script.If(overlaps), script.Then():
            first = broadcast(tirx.Sub(number(lanes), rest.get()), lanes)
            counted = tirx.LE(first, lane_numbers(number(0), index, lanes))
            self._body(start, lanes, 0, sums, [], Overlap(Local.of(counted, BOOL, lanes), held))
        whole = script.shift_right(length, number(lanes.bit_length() - 1))
        groups = Local.of(script.shift_right(whole, number(count.bit_length() - 1)), index, 1)
        with script.serial(groups.get()) as g:
            for part in range(count):
                at = tirx.Add(tirx.Mul(g, number(count * lanes)), number(part * lanes))
                self._body(at, lanes, part, sums, [], more=part + 1 < count)
        done = Local.of(tirx.Mul(groups.get(), number(count)), index, 1)
        with script.serial(tirx.Sub(whole, done.get())) as g:
            self._body(tirx.Mul(tirx.Add(done.get(), g), number(lanes)), lanes, 0, sums, [])
        with script.If(overlaps), script.Then():
            for local, (_, (memory, base)) in zip(held, self._writes(), strict=True):
                memory.store(local.get(), tirx.Add(base, start), lanes)
        for s in sums:
            results[s.node].set(s.result())

    def _body(
        self,
        at: Expr,
        lanes: int,
        part: int,
        sums: Sequence[Accumulators],
        loops: Sequence[scans.Scan],
        overlap: Overlap | None = None,
        more: bool = False,
    ) -> None:
        """Emit the elements from a position on."""
        at = Local.of(at, self._kernel.index, 1).get()
        e = Emission(self._kernel, self._scalars, lanes=lanes, bits=self._bits, at=at)
        for node in self._phase.loads:
            e.keep(node, self._load(e, node))
        waiting = {node: loop for loop in loops for node in loop.nodes}
        for node in self._phase.rows:
            if node.op == "scan":
                loop = waiting.pop(node, None)
                if loop is not None:
                    self._step(loop, e, waiting)
            else:
                e.compute(node)
        for loop in dict.fromkeys(waiting.values()):
            self._step(loop, e, waiting)
        for s in sums:
            s.add(e, part, None if overlap is None else overlap.counted.get(), more)
        stored = len(self._phase.stored)
        for i, (node, (memory, base)) in enumerate(self._writes()):
            x = _packed(e, node, memory.name) if i < stored else written(e, node, memory.name)
            if overlap is None:
                if len(self._phase.rows) <= _TRIVIAL or memory.name != F32:
                    x = opaque(x, memory.name, lanes, at)
                memory.store(x, tirx.Add(base, at), lanes)
            else:
                overlap.held[i].set(x)

    def _writes(self) -> list[tuple[Node, Write]]:
        """Return what is written and where, stored values first."""
        stored = [(node, self._row.stored(node)) for node in self._phase.stored]
        return stored + [(node, self._row.outputs[name]) for name, node in self._outputs.items()]

    def _step(self, loop: scans.Scan, e: Emission, waiting: dict[Node, scans.Scan]) -> None:
        loop.step(e)
        for node in loop.nodes:
            waiting.pop(node, None)

    def _load(self, e: Emission, node: Node) -> Expr:
        if node.op != "input":
            memory, base = self._row.stored(node)
            return _unpacked(e, node, memory.load(tirx.Add(base, _at(e)), e.lanes), memory.name)
        if node.attrs["name"] == "scores":
            memory, base = self._row.scores
            x = memory.load(tirx.Add(base, _at(e)), e.lanes)
            return x if memory.name == F32 else e.convert(x, memory.name, e.type_of(node))
        assert self._row.valid is not None
        memory, base, step = self._row.valid
        if e.lanes == 1:
            x = memory.load(tirx.Add(base, tirx.Mul(_at(e), step)), 1)
            return tirx.NE(x, const(0, memory.name))
        local = Local.empty(memory.name, e.lanes)
        with script.If(tirx.EQ(step, tirx.const(0, e.kernel.index))):
            with script.Then():
                local.set(broadcast(memory.load(base, 1), e.lanes))
            with script.Else():
                local.set(memory.load(tirx.Add(base, _at(e)), e.lanes))
        return tirx.NE(local.get(), e.const(0, memory.name))


def _at(e: Emission) -> Expr:
    assert e.at is not None
    return e.at


def written(e: Emission, node: Node, name: str) -> Expr:
    """Return a value as an output's memory holds it."""
    held = e.type_of(node)
    x = e.value(node)
    if held == BOOL:
        return tirx.Select(x, e.const(1, name), e.const(0, name))
    if held == name:
        return x
    return floats.from_integer(e, x, held) if name == F32 else e.convert(x, held, name)


def _packed(e: Emission, node: Node, name: str) -> Expr:
    """Return a value as the memory of stored rows holds it."""
    held = e.type_of(node)
    x = e.value(node)
    if held == name:
        return x
    if held == BOOL:
        x, held = tirx.Select(x, e.const(1, "uint32"), e.const(0, "uint32")), "uint32"
    if held == F32:
        x, held = reinterpret(x, "uint32", e.lanes), "uint32"
    if name == F32:
        return reinterpret(cast(x, held, "uint32", e.lanes), F32, e.lanes)
    return cast(x, held, name, e.lanes)


def _unpacked(e: Emission, node: Node, x: Expr, name: str) -> Expr:
    """Return a stored value in the type that it has here."""
    held = e.type_of(node)
    if held == name:
        return x
    if name == F32:
        x, name = reinterpret(x, "uint32", e.lanes), "uint32"
    if held == F32:
        return reinterpret(cast(x, name, "uint32", e.lanes), F32, e.lanes)
    if held == BOOL:
        return tirx.NE(x, e.const(0, name))
    # The bits of the stored number, then with its sign to the width of this pass.
    exact = name if node.dtype is DType.BOOL else type_name(node.dtype)
    return cast(cast(x, name, exact, e.lanes), exact, held, e.lanes)
