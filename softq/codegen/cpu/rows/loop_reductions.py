"""The reductions of a pass: in which of a block's vectors each of them takes in its elements."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.ir import Expr

from softq.codegen.common import carriers
from softq.codegen.cpu.rows.accumulators import Accumulators, ByteSums
from softq.codegen.cpu.rows.blocks import Block, sizes
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import LaneWidths
from softq.rowprog.program import Node

_WORD = 32


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
        narrow_lanes, wide_lanes = sizes(plan, kernel)
        narrow = Emission(kernel, scalars, lanes=narrow_lanes, bits=8)
        wide = Emission(kernel, scalars, lanes=wide_lanes, bits=plan.bits)
        self._bytes: list[ByteSums] = []
        self._narrow: list[Accumulators] = []
        self._wide: list[Accumulators] = []
        for node in reduced:
            if node not in plan.reduced:
                self._wide.append(Accumulators(node, wide, parts or vectors * plan.ratio))
            elif node.op == "row_sum":
                count, fixed = plan.planes.get(node.args[0], 1), plan.fixed.get(node)
                scale = None if fixed is None else fixed.scale
                is_wide = fixed is not None or carriers.bits(node, kernel.proof) > _WORD
                self._bytes.append(
                    ByteSums(node, kernel.processor, narrow_lanes, count, vectors, scale, wide=is_wide, short=short)
                )
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
