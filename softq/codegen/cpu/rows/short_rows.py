"""Rows that fit into a few vectors: every value stays in registers from the first pass to the last.

Several rows stand side by side, so that the reductions of their lanes, and what is computed of these, are made for all
of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from softq.codegen.cpu.rows import row_group
from softq.codegen.cpu.rows.block_results import LoopReductions, Write
from softq.codegen.cpu.rows.blocks import Block
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.lane_widths import find_widths
from softq.codegen.cpu.rows.load_store import RowMemory
from softq.codegen.cpu.rows.row_group import RowGroup
from softq.codegen.cpu.rows.tir import Local
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node

Row = tuple[KernelContext, RowMemory, Emission]
"""What belongs to a row."""

_SIDE_BY_SIDE = 4
"""Vectors of rows that stand side by side: more rows of fewer vectors, a power of two."""

_MOST_NODES = 40
"""Values of an element up to which they do: longer code is not worth the time that it takes to compile."""

_VECTORS = 4
"""Vectors of the widest values that a row may take; so many are computed side by side in long rows too."""


@dataclass(frozen=True)
class Form:
    """The code for rows of some lengths.

    Attributes:
        vectors: Vectors of bytes, or of the wide type where there are none of bytes.
        parts: If not None, the number of wide vectors that may hold elements.
        rows: How many rows stand side by side.
        above: Rows are longer than this.
        upto: Rows are not longer than this.
    """

    vectors: int
    parts: int | None
    rows: int
    above: int
    upto: int


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

    def forms(self, groups: bool) -> Sequence[Form]:
        """Return the forms of the code, those of shorter rows first; `groups` says whether rows may stand side by side.

        Of rows side by side there are fewer forms: their code is longer, and what they save is more than a vector.
        """
        plan, side = self._plan, _SIDE_BY_SIDE
        nodes = sum(len(p.rows) for p in self._passes)
        groups = groups and nodes <= _MOST_NODES and row_group.is_possible(self._passes)
        counts: list[tuple[int, int | None, int]] = []
        if not plan.bits or plan.ratio == 1:
            # Fewer rows than a group go the way of long ones, which adds the last of so many vectors in another order.
            ordered = groups and plan.adds_floats(node for p in self._passes for node in p.reductions)
            most = _VECTORS - 1 if ordered else _VECTORS
            counts = [(vectors, None, max(1, side // vectors & ~1)) for vectors in range(1, most + 1)]
        elif plan.ratio <= _VECTORS and groups:
            counts = [(1, plan.ratio // 2, side // 2), (1, plan.ratio, side)]
        elif plan.ratio <= _VECTORS:
            counts = [(1, parts, 1) for parts in range(1, plan.ratio + 1)]
        step = plan.wide_lanes if plan.bits else plan.size
        limits = [step * (parts or vectors) for vectors, parts, _ in counts]
        return [Form(vectors, parts, rows if groups else 1, above, upto)
                for (vectors, parts, rows), above, upto in zip(counts, [0, *limits], limits, strict=False)]  # fmt: skip

    def emit(self, form: Form, rows: Sequence[Row]) -> Emission:
        """Emit rows of one form, side by side; return where their numbers are."""
        plan, kernel, parts = self._plan, rows[0][0], form.parts
        at = Local.of(tirx.const(0, kernel.index), kernel.index, 1).get()
        blocks = [Block(kernel, scalars, plan, row, self._loads, at, vectors=form.vectors, rest=kernel.length,
                        parts=parts, least=form.above) for kernel, row, scalars in rows]  # fmt: skip
        group = RowGroup([scalars for _, _, scalars in rows], self._passes) if len(rows) > 1 else None
        for phase in self._passes:
            self._compute(group, rows[0][2], phase.setup)
            sums: list[LoopReductions] = []
            for block, (kernel, _, scalars) in zip(blocks, rows, strict=True):
                block.compute(phase.rows)
                sums.append(
                    LoopReductions(kernel, scalars, plan, phase.reductions, form.vectors, parts or 0, short=True)
                )
                sums[-1].add(block, first=True)
            if group is not None:
                group.keep(sums[0].results_of([one.wholes() for one in sums]))
            else:
                for node, x in sums[0].results().items():
                    rows[0][2].keep(node, x)
            self._compute(group, rows[0][2], phase.scalars)
            for block, (_, row, _) in zip(blocks, rows, strict=True):
                for write in self._writes(phase, row):
                    write.emit(block)
        return rows[0][2] if group is None else group.numbers

    @staticmethod
    def _compute(group: RowGroup | None, scalars: Emission, nodes: Sequence[Node]) -> None:
        if group is None:
            scalars.compute(*nodes)
        else:
            group.compute(nodes)

    def _writes(self, phase: Phase, row: RowMemory) -> list[Write]:
        return [Write(self._outputs[name], row.outputs[name], False) for name in phase.outputs]
