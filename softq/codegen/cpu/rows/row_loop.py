"""One pass over the row: block by block where it is computed in vectors, else an element at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common import carriers
from softq.codegen.common.patterns import group
from softq.codegen.cpu.rows import row_tables, scans
from softq.codegen.cpu.rows.block_loop import BlockLoop
from softq.codegen.cpu.rows.block_results import Write
from softq.codegen.cpu.rows.element_loop import ElementLoop
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.group_maxima import find_group_maxima
from softq.codegen.cpu.rows.lane_widths import LaneWidths, find_widths
from softq.codegen.cpu.rows.load_store import RowMemory
from softq.codegen.cpu.rows.tir import Local, const, type_name
from softq.rowprog.ops import OPS
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node
from softq.rowprog.types import Kind

_WORD = 32


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
        self._bits = _WORD if kernel.processor.machine.in_c else carriers.width(used, self._reduced, kernel.proof)
        has_floats = any(node.dtype.is_float for node in (*used, *self._reduced))
        self._is_scalar = bool(self._scan_groups) or kernel.processor.lanes(self._bits, has_floats) == 1

    def emit(self) -> None:
        """Emit the pass; the results of its reductions are scalars then."""
        self._scans = [scans.Scan(nodes, self._scalars) for nodes in self._scan_groups]
        some = tirx.LT(tirx.const(0, self._kernel.index), self._kernel.length)
        plan = None if self._is_scalar else self._find_widths()
        tables = None if plan is None else self._row_tables(plan)
        loop = self._element_loop() if plan is None and self._kernel.processor.machine.in_c else None
        if loop is not None and loop.takes_none:
            results = {node: Local.of(x, type_name(node.dtype), 1) for node, x in loop.emit().items()}
            return self._finish(results)
        results = self._of_empty_row()
        if plan is None:
            with script.If(some), script.Then():
                self._one_by_one(results)
        elif tables is None:
            self._element_by_element(plan, results, some)
        else:
            with script.If(tirx.LE(tirx.const(row_tables.LEAST_LENGTH, self._kernel.index), self._kernel.length)):
                with script.Then():
                    self._by_tables(tables, results)
                with script.Else():
                    self._element_by_element(plan, results, some)
        return self._finish(results)

    def _finish(self, results: Mapping[Node, Local]) -> None:
        """Let the results of reductions and scans be scalars."""
        self._bind(results)
        for loop in self._scans:
            loop.finish()
        for node in self._phase.groups:
            find_group_maxima(node, self._row, self._scalars)

    def blocks(self) -> BlockLoop | None:
        """Return what emits the pass step by step; None if it is not computed in blocks of vectors under masks."""
        plan = None if self._is_scalar or not self._kernel.processor.masks else self._find_widths()
        return None if plan is None or self._row_tables(plan) is not None else self._block_loop(plan)

    def _of_empty_row(self) -> dict[Node, Local]:
        """Return memory for the results of reductions, with what they are of no element."""
        results = {node: Local.empty(type_name(node.dtype), 1) for node in self._reduced}
        for node, local in results.items():
            local.set(const(OPS[node.op].of_empty_row(node.dtype), local.name))
        return results

    def _bind(self, results: Mapping[Node, Local]) -> None:
        for node, local in results.items():
            self._scalars.bind(node, local)

    def _element_by_element(self, plan: LaneWidths, results: Mapping[Node, Local], some: Expr) -> None:
        if self._kernel.processor.masks or self._kernel.processor.predicates:
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
        if not self._kernel.processor.byte_entries or self._kernel.row_tables or self._scan_groups or not plan.in_bytes:
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

    def _blocks(self, plan: LaneWidths, results: Mapping[Node, Local]) -> None:
        blocks = self._block_loop(plan)
        blocks.begin()
        with script.serial(blocks.groups()) as g:
            blocks.step(g, self._ahead)
        blocks.remainder()
        for node, x in blocks.results().items():
            results[node].set(x)

    def _block_loop(self, plan: LaneWidths) -> BlockLoop:
        return BlockLoop(self._kernel, self._phase, self._row, self._scalars, self._writes(), self._reduced, plan)

    def _find_widths(self) -> LaneWidths:
        loads = {node: self._row.line_of(node).memory.name for node in self._phase.loads}
        return find_widths(
            self._kernel, loads, self._phase.rows, self._reduced, [(w.node, w.held) for w in self._writes()]
        )

    def _writes(self) -> list[Write]:
        """Return what is written, stored values first."""
        stored = [Write(node, self._row.stored(node), True) for node in self._phase.stored]
        return stored + [Write(node, self._row.outputs[name], False) for name, node in self._outputs.items()]

    def _one_by_one(self, results: Mapping[Node, Local]) -> None:
        for node, x in self._element_loop().emit().items():
            results[node].set(x)

    def _element_loop(self) -> ElementLoop:
        return ElementLoop(self._kernel, self._phase, self._row, self._scalars, self._writes(), self._reduced,
                           self._scans, self._bits)  # fmt: skip
