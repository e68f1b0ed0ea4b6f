"""The elements of one pass, block by block: several blocks at a time, and what is left of the row at its end.

What is left is shorter than a block. Where masks cost nothing, all blocks have them, and the last one is one of the
loop. Where vectors are read and written under masks, it is one more block, whose lanes
behind the last element repeat the first one. Elsewhere the last block overlaps: it begins so many elements early that
it ends with the row, is computed before all others and written behind them, because an output row may hold values that
this pass reads; sums take in the lanes that no other block has. So every lane is an element of the row: proofs hold,
and table positions are inside their tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.block_results import LoopReductions, Write
from softq.codegen.cpu.rows.blocks import Block
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import LaneWidths
from softq.codegen.cpu.rows.load_store import Line, RowMemory, store
from softq.codegen.cpu.rows.tir import Local, bits_of, hidden_count
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node

_CACHE_LINE = 64
"""Bytes that are asked for at once."""


class BlockLoop:
    """The emitter of the elements of one pass: `begin`, `groups` steps, `remainder`, and `results`.

    Args:
        kernel: What the whole kernel shares.
        phase: What the pass computes.
        row: The memory of the row.
        scalars: Where the row's scalars are.
        writes: What the pass writes.
        reduced: What it reduces.
        plan: The widths of the pass.
    """

    def __init__(
        self,
        kernel: KernelContext,
        phase: Phase,
        row: RowMemory,
        scalars: Emission,
        writes: Sequence[Write],
        reduced: Sequence[Node],
        plan: LaneWidths,
    ) -> None:
        self._kernel, self._phase, self._row, self._scalars = kernel, phase, row, scalars
        self._writes, self._reduced, self._plan = writes, reduced, plan
        unroll = kernel.processor.unroll
        self._vectors = max(1, unroll // plan.ratio) if plan.bits else unroll
        if max(plan.planes.values(), default=0) > 2:
            # The tables of many planes take the registers, and keep the processor busy without further vectors.
            self._vectors = min(self._vectors, 2)
        self._held: list[tuple[Emission, Line, Local]] = []

    @property
    def step_size(self) -> int:
        """Elements of a step."""
        return self._vectors * self._plan.size

    def begin(self) -> None:
        """Emit what comes before the first step."""
        self._sums = LoopReductions(self._kernel, self._scalars, self._plan, self._reduced, self._vectors)
        if self._kernel.processor.predicates:
            return
        self._rest = Local.of(self._low_bits(self._plan.size), self._kernel.index, 1)
        if self._kernel.processor.masks:
            return
        with script.If(self._some_left()), script.Then():
            last = self._block(tirx.Sub(self._kernel.length, self._number(self._plan.size)), rest=self._rest.get())
            for write in self._writes:
                for e in write.places(last):
                    self._held.append((e, write.line, Local.of(write.value(e), write.held, e.lanes)))

    def groups(self) -> Expr:
        """Return the number of steps."""
        if self._kernel.processor.predicates:
            last = tirx.Sub(self._kernel.length, self._number(1))
            more = script.shift_right(last, self._number(self._plan.size.bit_length() - 1))
            return hidden_count(tirx.Add(more, self._number(1)))
        return script.shift_right(self._kernel.length, self._number(self.step_size.bit_length() - 1))

    def step(self, number: Expr, ahead: Expr | None = None) -> None:
        """Emit the step of a number.

        Args:
            number: The number, within a loop.
            ahead: If not None, how far behind its own scores it asks for others.
        """
        at = tirx.Mul(number, self._number(self.step_size))
        if ahead is not None:
            self._ask_for(at, ahead)
        rest = tirx.Sub(self._kernel.length, at) if self._kernel.processor.predicates else None
        self._write(self._block(at, vectors=self._vectors, rest=rest), in_loop=True)

    @property
    def is_ordered(self) -> bool:
        """Whether the sum of floats would be another one if what is left of the row came first."""
        return self._plan.adds_floats(self._reduced)

    def results(self) -> dict[Node, Expr]:
        """Return the reductions, to be taken in their order."""
        return self._sums.results()

    def remainder(self) -> None:
        """Emit what is left of the row: after the last step where vectors have no masks."""
        if self._kernel.processor.predicates:
            return
        size, length = self._plan.size, self._kernel.length
        pieces = self._vectors
        while pieces > 1:
            pieces //= 2
            has_piece = tirx.NE(script.bitwise_and(length, self._number(pieces * size)), self._number(0))
            with script.If(has_piece), script.Then():
                self._write(self._block(tirx.Sub(length, self._low_bits(2 * pieces * size)), vectors=pieces))
        with script.If(self._some_left()), script.Then():
            self._finish_rest()

    def _finish_rest(self) -> None:
        plan = self._plan
        if not self._kernel.processor.masks:
            for e, line, local in self._held:
                store(e, line, local.get())
        elif plan.ratio <= 1 or not plan.bits:
            self._masked()
        else:
            # No wide vectors that would be empty where one of them is enough.
            with script.If(tirx.LE(self._rest.get(), self._number(plan.wide_lanes))):
                with script.Then():
                    self._masked(1)
                with script.Else():
                    self._masked()

    def _masked(self, parts: int | None = None) -> None:
        rest = self._rest.get()
        self._write(self._block(tirx.Sub(self._kernel.length, rest), rest=rest, parts=parts))

    def _some_left(self) -> Expr:
        return tirx.LT(self._number(0), self._rest.get())

    def _number(self, value: int) -> Expr:
        return tirx.const(value, self._kernel.index)

    def _low_bits(self, limit: int) -> Expr:
        return script.bitwise_and(self._kernel.length, self._number(limit - 1))

    def _block(self, at: Expr, vectors: int = 1, rest: Expr | None = None, parts: int | None = None) -> Block:
        here, loads = Local.of(at, self._kernel.index, 1).get(), self._phase.loads
        made = Block(self._kernel, self._scalars, self._plan, self._row, loads, here, vectors=vectors, rest=rest,
                     parts=parts)  # fmt: skip
        made.compute(self._phase.rows)
        self._sums.add(made)
        return made

    def _write(self, block: Block, in_loop: bool = False) -> None:
        for write in self._writes:
            write.emit(block, self._phase.rows if in_loop else None)

    def _ask_for(self, at: Expr, ahead: Expr) -> None:
        """Prefetch what a first pass reads later, while this one computes."""
        scores = self._row.scores
        step = _CACHE_LINE * 8 // bits_of(scores.memory.name)
        for first in range(0, self.step_size, step):
            position = tirx.Add(tirx.Add(at, tirx.const(first, self._kernel.index)), ahead)
            scores.memory.prefetch(scores.at(position))
