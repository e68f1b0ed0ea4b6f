"""What becomes of a block: its reductions and what is written, from which of its vectors each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm.ir import Expr

from softq.codegen.common import carriers
from softq.codegen.cpu.rows.accumulators import Accumulators
from softq.codegen.cpu.rows.blocks import Block
from softq.codegen.cpu.rows.byte_sums import ByteSums
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import LaneWidths, fits
from softq.codegen.cpu.rows.load_store import Line, packed, store, written
from softq.codegen.cpu.rows.tir import F32, Local, bits_of, opaque
from softq.rowprog.program import Node

_WORD = 32

_TRIVIAL = 7
"""Operators up to which a pass is taken for one that LLVM could see to be a copy or a constant; hiding costs 5 %."""


class LoopReductions:
    """The accumulators of all reductions of a pass.

    Args:
        kernel: What the whole kernel shares.
        scalars: Where the row's scalars are.
        plan: The widths of the pass.
        reduced: The reductions.
        vectors: Vectors of the largest block that is taken in at once.
        parts: Wide vectors of it, if they are fewer than its vectors of bytes hold.
        short: Whether that block is the whole row.
    """

    def __init__(
        self,
        kernel: KernelContext,
        scalars: Emission,
        plan: LaneWidths,
        reduced: Sequence[Node],
        vectors: int,
        parts: int = 0,
        short: bool = False,
    ) -> None:
        narrow = Emission(kernel, scalars, lanes=plan.vector_bytes, bits=8)
        wide = Emission(kernel, scalars, lanes=plan.wide_lanes, bits=plan.bits)
        self._bytes: list[ByteSums] = []
        self._narrow: list[Accumulators] = []
        self._wide: list[Accumulators] = []
        for node in reduced:
            if node not in plan.reduced:
                self._wide.append(Accumulators(node, wide, parts or vectors * plan.ratio))
            elif node.op == "row_sum":
                count, fixed = plan.planes.get(node.args[0], 1), plan.fixed.get(node)
                is_wide = fixed is not None or carriers.bits(node, kernel.proof) > _WORD
                sums = ByteSums(
                    node, kernel.processor, count, vectors, fixed and fixed.scale, wide=is_wide, short=short
                )
                self._bytes.append(sums)
            else:
                self._narrow.append(Accumulators(node, narrow, vectors))

    def add(self, block: Block, first: bool = False) -> None:
        """Take in the elements of a block, the first one and the largest if `first` is set."""
        for sums in self._wide:
            sums.add(block.wide, first)
        for sums in self._narrow:
            sums.add(block.narrow, first)
        for sums in self._bytes:
            found = [block.summed(sums.node, i) for i in range(len(block.narrow))]
            sums.add(found, block.narrow, first)

    def results(self) -> dict[Node, Expr]:
        """Return the reductions, to be taken in this order."""
        return {sums.node: sums.result() for sums in (*self._wide, *self._narrow, *self._bytes)}

    def wholes(self) -> dict[Node, Local]:
        """Return the vectors that the reductions are made of."""
        return {sums.node: sums.whole() for sums in (*self._wide, *self._narrow, *self._bytes)}

    def results_of(self, rows: Sequence[Mapping[Node, Local]]) -> dict[Node, Expr]:
        """Return the reductions of several rows side by side, of their `wholes`, to be taken in this order."""
        every = (*self._wide, *self._narrow, *self._bytes)
        return {sums.node: sums.results([row[sums.node] for row in rows]) for sums in every}


@dataclass(frozen=True)
class Write:
    """A row value that is written.

    Attributes:
        node: The value.
        line: Where.
        stored: Whether a later pass reads it, else it is an output.
    """

    node: Node
    line: Line
    stored: bool

    @property
    def held(self) -> str:
        """The type of the memory."""
        return self.line.memory.name

    def places(self, block: Block) -> Sequence[Emission]:
        """Return where in a block it is written from."""
        in_bytes = bool(block.narrow) and bits_of(self.held) == 8 and fits(self.node, block.narrow[0].kernel)
        return block.narrow if in_bytes else block.wide

    def value(self, e: Emission, loop: Sequence[Node] | None = None) -> Expr:
        """Return it as its memory holds it.

        Args:
            e: Where it was computed.
            loop: What else is computed in the loop that writes it, if it is in one: LLVM makes loops that copy or
                repeat what it knows calls of the C library's memcpy and memset.
        """
        x = (packed if self.stored else written)(e, self.node, self.held)
        hide = loop is not None and (len(loop) <= _TRIVIAL or self.held != F32)
        return opaque(x, self.held, e.lanes, e.at) if hide else x

    def emit(self, block: Block, loop: Sequence[Node] | None = None) -> None:
        """Write the elements of a block, in a loop if `loop` is given."""
        for e in self.places(block):
            store(e, self.line, self.value(e, loop))
