"""The elements of one pass, one by one; in C four per turn, so that little is spent on counting turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common.patterns import order_steps
from softq.codegen.cpu.rows.accumulators import Accumulators
from softq.codegen.cpu.rows.block_results import Write
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.four_scores import PER_WORD, FourScores, has_dsp
from softq.codegen.cpu.rows.load_store import RowMemory, load, store, store_pair
from softq.codegen.cpu.rows.scans import Scan
from softq.codegen.cpu.rows.tir import Local, keep_rolled
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node

_SHORT = 6
"""Operators up to which an element takes little beside the counting of turns; a longer pass makes that of all passes
matter little."""


class ElementLoop:
    """The emitter of the elements of one pass, in their order.

    Args:
        kernel: What the whole kernel shares.
        phase: What the pass computes.
        row: The memory of the row.
        scalars: Where the row's scalars are.
        writes: What the pass writes.
        reduced: What it reduces.
        scans: Its scans.
        bits: The width of its carriers.
    """

    def __init__(
        self,
        kernel: KernelContext,
        phase: Phase,
        row: RowMemory,
        scalars: Emission,
        writes: Sequence[Write],
        reduced: Sequence[Node],
        scans: Sequence[Scan],
        bits: int,
    ) -> None:
        self._kernel, self._phase, self._row, self._scalars, self._bits = kernel, phase, row, scalars, bits
        self._writes, self._scans = writes, scans
        place = Emission(kernel, scalars, bits=bits)
        self._sums = [Accumulators(node, place, 1) for node in reduced]

    @property
    def takes_none(self) -> bool:
        """Whether the results are right for rows without elements, too."""
        return all(s.starts_empty for s in self._sums)

    def emit(self) -> Mapping[Node, Expr]:
        """Emit the loops, and return the results of the reductions."""
        length, rest = self._kernel.length, self._kernel.length
        if self._has_groups():
            groups = self._position(script.shift_right(length, self._number(PER_WORD.bit_length() - 1)))
            four = FourScores.of(self._kernel, self._phase, self._row, self._scalars, self._writes, self._sums)
            if four is None:
                self._groups(groups)
            else:
                with script.If(has_dsp()):
                    # Bytes hold no extreme of no scores.
                    with script.Then(), script.If(tirx.LT(self._number(0), groups)), script.Then():
                        self._groups_of_words(four, groups)
                    with script.Else():
                        self._groups(groups)
            rest = self._position(script.bitwise_and(length, self._number(PER_WORD - 1)))
        with script.serial(tirx.Sub(length, rest), length) as at:
            if self._kernel.processor.machine.in_flash and not self._kernel.processor.machine.in_c:
                keep_rolled()
            self._write([self._element(self._position(at))])
        return {s.node: s.result() for s in self._sums}

    def _has_groups(self) -> bool:
        if not self._kernel.processor.machine.in_c or self._scans:
            return False
        return self._kernel.operators <= _SHORT or any(write.line.nibbles for write in self._writes)

    def _groups(self, groups: Expr) -> None:
        with script.serial(groups) as number:
            places = self._places(number)
            for k in range(0, PER_WORD, 2):
                self._write([self._element(places[k + i]) for i in (0, 1)], self._half(number, k))

    def _groups_of_words(self, four: FourScores, groups: Expr) -> None:
        four.begin()
        with script.serial(groups) as number:
            places = self._places(number)
            four.load(places[0])
            for k in range(0, PER_WORD * bool(four.needed), 2):
                self._write([self._element(places[k + i], four, k + i) for i in (0, 1)], self._half(number, k))
        four.finish()

    def _places(self, group: Expr) -> Sequence[Expr]:
        first = self._position(tirx.Mul(group, self._number(PER_WORD)))
        return [self._position(tirx.Add(first, self._number(k))) for k in range(PER_WORD)]

    def _half(self, group: Expr, number: int) -> Expr:
        """Return the position of an element of a group where two share a byte."""
        return tirx.Add(tirx.Mul(group, self._number(PER_WORD // 2)), self._number(number // 2))

    def _element(self, at: Expr, four: FourScores | None = None, number: int = 0) -> Emission:
        """Compute an element of the row, and take it into the reductions."""
        e = Emission(self._kernel, self._scalars, bits=self._bits, at=at)
        if four is not None:
            four.bind(e, number)
        for node in self._phase.loads:
            if four is None or (node in four.needed and not e.has(node)):
                e.keep(node, load(e, node, self._row))
        for step in order_steps(self._phase.rows, {node: loop for loop in self._scans for node in loop.nodes}):
            if not isinstance(step, Node):
                step.step(e)
            elif four is None or step in four.needed:
                e.compute(step)
        for s in self._sums:
            if four is None or s not in four.extremes:
                s.add([e])
        return e

    def _write(self, places: Sequence[Emission], half: Expr | None = None) -> None:
        """Write an element, or two beside each other, which share a byte, the `half`, where numbers have four bits."""
        for write in self._writes:
            # A compiler of C may copy and fill as it likes, and LLVM does not where it leaves turns alone.
            hide = None if self._kernel.processor.machine.in_flash else self._phase.rows
            values = [write.value(e, hide) for e in places]
            if write.line.nibbles and half is not None:
                store_pair(write.line, half, *values)
            else:
                for e, x in zip(places, values, strict=True):
                    store(e, write.line, x)

    def _position(self, x: Expr) -> Expr:
        return Local.of(x, self._kernel.index, 1).get()

    def _number(self, value: int) -> Expr:
        return tirx.const(value, self._kernel.index)
