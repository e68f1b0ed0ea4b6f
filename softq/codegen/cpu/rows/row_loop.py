"""One pass over the row: whole blocks, several at a time, and what is left of the row at its end.

What is left is shorter than a block. Where vectors are read and written under masks, it is one more block, whose lanes
behind the last element repeat the first one. Elsewhere the last block overlaps: it begins so many elements early that
it ends with the row, is computed before all others and written behind them, because an output row may hold values that
this pass reads; sums take in the lanes that no other block has. So every lane is an element of the row: proofs hold,
and table positions are inside their tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common import carriers
from softq.codegen.common.patterns import group, order_steps
from softq.codegen.cpu.rows import row_tables, scans
from softq.codegen.cpu.rows.accumulators import Accumulators
from softq.codegen.cpu.rows.block_results import LoopReductions, Write
from softq.codegen.cpu.rows.blocks import Block
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import LaneWidths, find_widths
from softq.codegen.cpu.rows.load_store import Line, RowMemory, load, store
from softq.codegen.cpu.rows.tir import Local, bits_of, const, type_name
from softq.rowprog.ops import OPS
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node
from softq.rowprog.types import Kind

_CACHE_LINE = 64
"""Bytes that are asked for at once."""


class RowLoop:
    """The emitter of one pass.

    Args:
        kernel: What the whole kernel shares.
        phase: What the pass computes.
        row: The memory of the row.
        scalars: Where the row's scalars are.
        outputs: The output of each name that the pass writes.
        ahead: How far behind the scores at hand those of the next row stand, if this pass asks for them.
    """

    def __init__(
        self,
        kernel: KernelContext,
        phase: Phase,
        row: RowMemory,
        scalars: Emission,
        outputs: Mapping[str, Node],
        ahead: Expr | None = None,
    ) -> None:
        self._kernel, self._phase, self._row, self._scalars, self._ahead = kernel, phase, row, scalars, ahead
        self._outputs = {name: outputs[name] for name in phase.outputs}
        self._scan_groups = group([*phase.rows, *phase.reductions])
        self._scans: list[scans.Scan] = []
        self._reduced = [node for node in phase.reductions if node.op != "scan"]
        used = (*phase.loads, *phase.rows, *self._outputs.values())
        self._bits = carriers.width(used, self._reduced, kernel.proof)
        has_floats = any(node.dtype.is_float for node in (*used, *self._reduced))
        self._is_scalar = bool(self._scan_groups) or kernel.processor.lanes(self._bits, has_floats) == 1

    def emit(self) -> None:
        """Emit the pass; the results of its reductions are scalars then."""
        index, length = self._kernel.index, self._kernel.length
        results = {node: Local.empty(type_name(node.dtype), 1) for node in self._reduced}
        self._scans = [scans.Scan(nodes, self._scalars) for nodes in self._scan_groups]
        for node, local in results.items():
            local.set(const(OPS[node.op].of_empty_row(node.dtype), local.name))
        some = tirx.LT(tirx.const(0, index), length)
        plan = None if self._is_scalar else self._find_widths()
        tables = None if plan is None else self._row_tables(plan)
        if plan is None:
            with script.If(some), script.Then():
                self._one_by_one(results)
        elif tables is None:
            self._element_by_element(plan, results, some)
        else:
            with script.If(tirx.LE(tirx.const(row_tables.LEAST_LENGTH, index), length)):
                with script.Then():
                    self._by_tables(tables, results)
                with script.Else():
                    self._element_by_element(plan, results, some)
        for node, local in results.items():
            self._scalars.bind(node, local)
        for loop in self._scans:
            loop.finish()

    def _element_by_element(self, plan: LaneWidths, results: Mapping[Node, Local], some: Expr) -> None:
        if self._kernel.processor.masks:
            with script.If(some), script.Then():
                self._blocks(plan, results)
            return
        with script.If(tirx.LE(tirx.const(plan.size, self._kernel.index), self._kernel.length)):
            with script.Then():
                self._blocks(plan, results)
            with script.Else(), script.If(some), script.Then():
                self._one_by_one(results)

    def _row_tables(self, plan: LaneWidths) -> row_tables.RowTables | None:
        """Return what a long row looks up in tables of its own; None if the pass computes in no vectors of bytes."""
        if self._kernel.row_tables or self._scan_groups or not plan.in_bytes:
            return None
        wanted = [w.node for w in self._writes()] + [arg for node in self._reduced for arg in node.args]
        return row_tables.find(self._kernel, self._phase, [node for node in wanted if node.kind is Kind.ROW])

    def _by_tables(self, found: row_tables.RowTables, results: Mapping[Node, Local]) -> None:
        entries = row_tables.Entries(self._kernel, found)
        kernel, phase, row, outputs = entries.made()
        table = RowLoop(kernel, phase, row, self._scalars, outputs)
        table._blocks(table._find_widths(), {})
        phase = replace(self._phase, rows=found.rows)
        rest = RowLoop(entries.kernel(), phase, self._row, self._scalars, self._outputs, self._ahead)
        rest._blocks(rest._find_widths(), results)

    def _find_widths(self) -> LaneWidths:
        loads = {node: self._row.line_of(node).memory.name for node in self._phase.loads}
        return find_widths(
            self._kernel, loads, self._phase.rows, self._reduced, [(w.node, w.held) for w in self._writes()]
        )

    def _writes(self) -> list[Write]:
        """Return what is written, stored values first."""
        stored = [Write(node, self._row.stored(node), True) for node in self._phase.stored]
        return stored + [Write(node, self._row.outputs[name], False) for name, node in self._outputs.items()]

    # An element at a time

    def _one_by_one(self, results: Mapping[Node, Local]) -> None:
        place = Emission(self._kernel, self._scalars, bits=self._bits)
        sums = [Accumulators(node, place, 1) for node in self._reduced]
        with script.serial(self._kernel.length) as j:
            at = Local.of(j, self._kernel.index, 1).get()
            e = Emission(self._kernel, self._scalars, bits=self._bits, at=at)
            for node in self._phase.loads:
                e.keep(node, load(e, node, self._row))
            for step in order_steps(self._phase.rows, {node: loop for loop in self._scans for node in loop.nodes}):
                if isinstance(step, Node):
                    e.compute(step)
                else:
                    step.step(e)
            for s in sums:
                s.add([e])
            for write in self._writes():
                store(e, write.line, write.value(e, self._phase.rows))
        for s in sums:
            results[s.node].set(s.result())

    # Block by block

    def _blocks(self, plan: LaneWidths, results: Mapping[Node, Local]) -> None:
        index, length, size = self._kernel.index, self._kernel.length, plan.size
        unroll = self._kernel.processor.unroll
        count = max(1, unroll // plan.ratio) if plan.bits else unroll
        if max(plan.planes.values(), default=0) > 2:
            # The tables of many planes take the registers, and keep the processor busy without further vectors.
            count = min(count, 2)
        sums = LoopReductions(self._kernel, self._scalars, plan, self._reduced, count)

        def number(value: int) -> Expr:
            return tirx.const(value, index)

        def low_bits(limit: int) -> Expr:
            return script.bitwise_and(length, number(limit - 1))

        def block(at: Expr, vectors: int = 1, rest: Expr | None = None, parts: int | None = None) -> Block:
            here, loads = Local.of(at, index, 1).get(), self._phase.loads
            made = Block(self._kernel, self._scalars, plan, self._row, loads, here, vectors=vectors, rest=rest,
                         parts=parts)  # fmt: skip
            made.compute(self._phase.rows)
            sums.add(made)
            return made

        rest = Local.of(low_bits(size), index, 1)
        some_left = tirx.LT(number(0), rest.get())
        masks = self._kernel.processor.masks
        held: list[tuple[Emission, Line, Local]] = []
        if not masks:
            with script.If(some_left), script.Then():
                last = block(tirx.Sub(length, number(size)), rest=rest.get())
                for write in self._writes():
                    for e in write.places(last):
                        held.append((e, write.line, Local.of(write.value(e), write.held, e.lanes)))
        groups = script.shift_right(length, number((count * size).bit_length() - 1))
        with script.serial(groups) as g:
            at = tirx.Mul(g, number(count * size))
            self._ask_for_next_row(at, count * size)
            self._write(block(at, vectors=count), in_loop=True)
        pieces = count
        while pieces > 1:
            pieces //= 2
            with script.If(tirx.NE(script.bitwise_and(length, number(pieces * size)), number(0))), script.Then():
                self._write(block(tirx.Sub(length, low_bits(2 * pieces * size)), vectors=pieces))

        def masked(parts: int | None = None) -> None:
            self._write(block(tirx.Sub(length, rest.get()), rest=rest.get(), parts=parts))

        with script.If(some_left), script.Then():
            if not masks:
                for e, line, local in held:
                    store(e, line, local.get())
            elif plan.ratio <= 1 or not plan.bits:
                masked()
            else:
                # No wide vectors that would be empty where one of them is enough.
                with script.If(tirx.LE(rest.get(), number(plan.wide_lanes))):
                    with script.Then():
                        masked(1)
                    with script.Else():
                        masked()
        for node, x in sums.results().items():
            results[node].set(x)

    def _write(self, block: Block, in_loop: bool = False) -> None:
        for write in self._writes():
            write.emit(block, self._phase.rows if in_loop else None)

    def _ask_for_next_row(self, at: Expr, size: int) -> None:
        """Prefetch what the first pass over the next row reads, while this one computes."""
        if self._ahead is None:
            return
        scores = self._row.scores
        step = _CACHE_LINE * 8 // bits_of(scores.memory.name)
        for first in range(0, size, step):
            position = tirx.Add(tirx.Add(at, tirx.const(first, self._kernel.index)), self._ahead)
            scores.memory.prefetch(scores.at(position))
