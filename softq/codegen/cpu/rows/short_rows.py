"""Rows that fit into a few vectors: every value stays in registers from the first pass to the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvm import tirx

from softq.codegen.cpu.rows.block_results import LoopReductions, Write
from softq.codegen.cpu.rows.blocks import Block
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import find_widths
from softq.codegen.cpu.rows.load_store import RowMemory
from softq.codegen.cpu.rows.tir import Local
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node

_VECTORS = 4
"""Vectors of the widest values that a row may take; so many are computed side by side in long rows too."""


class ShortRows:
    """The emitter of rows without scans that are one block, of vectors under masks.

    Args:
        kernel: What the whole kernel shares.
        passes: What the program computes, pass by pass.
        outputs: The outputs by name.
        row: Any row, for the types of its memory.
    """

    def __init__(
        self, kernel: KernelContext, passes: Sequence[Phase], outputs: Mapping[str, Node], row: RowMemory
    ) -> None:
        self._kernel, self._passes, self._outputs = kernel, passes, outputs
        self._loads = [node for node in dict.fromkeys(n for p in passes for n in p.loads) if node.op == "input"]
        rows = list(dict.fromkeys(node for p in passes for node in p.rows))
        reduced = [node for p in passes for node in p.reductions]
        loads = {node: row.line_of(node).memory.name for node in self._loads}
        self._plan = find_widths(
            kernel, loads, rows, reduced, [(w.node, w.held) for p in passes for w in self._writes(p, row)]
        )

    @property
    def step(self) -> int:
        """Elements by which one form of the code is longer than the one before."""
        return self._plan.wide_lanes if self._plan.bits else self._plan.size

    def forms(self) -> Iterator[tuple[int, int | None]]:
        """Yield the vectors of each form of the code, and how many wide ones of them hold elements."""
        if not self._plan.bits or self._plan.ratio == 1:
            yield from ((vectors, None) for vectors in range(1, _VECTORS + 1))
        elif self._plan.ratio <= _VECTORS:
            yield from ((1, parts) for parts in range(1, self._plan.ratio + 1))

    def emit(self, kernel: KernelContext, row: RowMemory, scalars: Emission, vectors: int, parts: int | None) -> None:
        """Emit the row of one form; the program's scalars are in `scalars` then."""
        plan = self._plan
        least = self.step * ((parts or vectors) - 1)
        at = Local.of(tirx.const(0, kernel.index), kernel.index, 1).get()
        block = Block(kernel, scalars, plan, row, self._loads, at, vectors=vectors, rest=kernel.length,
                      parts=parts, least=least)  # fmt: skip
        for phase in self._passes:
            scalars.compute(*phase.setup)
            block.compute(phase.rows)
            sums = LoopReductions(kernel, scalars, plan, phase.reductions, vectors, parts or 0, short=True)
            sums.add(block, first=True)
            for node, x in sums.results().items():
                scalars.keep(node, x)
            scalars.compute(*phase.scalars)
            for write in self._writes(phase, row):
                write.emit(block)

    def _writes(self, phase: Phase, row: RowMemory) -> list[Write]:
        return [Write(self._outputs[name], row.outputs[name], False) for name in phase.outputs]
