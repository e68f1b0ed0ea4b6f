"""Rows pass by pass, where the passes of neighbouring rows take turns.

The end of a pass is a chain: lanes are reduced to one number, which the next pass waits for. So the first pass is over
one row, the second over the row before it, and so on: what a pass waits for was done a whole pass ago. The numbers of
a row wait in a ring. Long rows, where the chain is little, are taken one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.load_store import RowMemory
from softq.codegen.cpu.rows.row_loop import RowLoop
from softq.codegen.cpu.rows.tir import Local, type_name
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node
from softq.rowprog.types import Kind

MOST_PASSES = 4
"""Rows whose numbers are kept: a power of two, and at least as many as there are passes."""

_NEAR_BYTES = (2**13, 2**10)
"""Rows of scores up to which the second pass is one row behind the first, and every further one behind the one before
it: measured; in longer rows the misses of what is written cost more than the chains."""


@dataclass(frozen=True)
class Stage:
    """One pass and what it takes from earlier ones.

    Attributes:
        phase: What it computes.
        needed: Numbers of the row that earlier passes computed.
        kept: Numbers that it computes for later ones.
        outputs: Names of outputs that are numbers it computes.
    """

    phase: Phase
    needed: tuple[Node, ...]
    kept: tuple[Node, ...]
    outputs: tuple[str, ...]


def split_stages(passes: Sequence[Phase], outputs: Mapping[str, Node]) -> list[Stage]:
    """Return the passes with the numbers that go from one to another."""
    maker = {n: p.number for p in passes for n in (*p.setup, *p.reductions, *p.scalars)}
    needed = {
        p.number: tuple(
            arg
            for arg in dict.fromkeys(a for n in (*p.setup, *p.rows, *p.reductions, *p.scalars) for a in n.args)
            if arg.kind is Kind.SCALAR and maker.get(arg, p.number) < p.number
        )
        for p in passes
    }
    stages: list[Stage] = []
    for phase in passes:
        later = {node for number, nodes in needed.items() if number > phase.number for node in nodes}
        kept = tuple(n for n in (*phase.setup, *phase.reductions, *phase.scalars) if n in later)
        names = tuple(name for name, n in outputs.items() if n.kind is Kind.SCALAR and maker.get(n) == phase.number)
        stages.append(Stage(phase, needed[phase.number], kept, names))
    return stages


class Pipeline:
    """The emitter of all rows, of 2 to `MOST_PASSES` passes without scans, whose steps may use any number of the row.

    Args:
        kernel: What the whole kernel shares.
        found: The passes.
        outputs: The outputs by name.
        begin: Number of the first row.
        count: Number of rows.
    """

    def __init__(
        self, kernel: KernelContext, found: Sequence[Stage], outputs: Mapping[str, Node], begin: Expr, count: Expr
    ) -> None:
        self._kernel, self._stages, self._outputs, self._begin, self._count = kernel, found, outputs, begin, count
        self._ring = {node: Local.empty(type_name(node.dtype), MOST_PASSES) for stage in found for node in stage.kept}

    def emit(
        self,
        row_bytes: Expr,
        start: Callable[[int, Expr], tuple[KernelContext, RowMemory, Emission]],
        finish: Callable[[int, Emission, Expr, Sequence[str]], None],
        ahead: tuple[Phase | None, Expr],
    ) -> None:
        """Emit the rows.

        Args:
            row_bytes: Bytes of a row of scores.
            start: Gives what a pass needs of the row with a number.
            finish: Ends a pass over the row with a number: outputs to write are named.
            ahead: Which pass asks for the next row of scores, and how far behind its own they stand.
        """
        index = self._kernel.index
        zero, one = tirx.const(0, index), tirx.const(1, index)
        first, further = (
            Local.of(tirx.Select(tirx.LE(row_bytes, tirx.const(limit, index)), one, zero), index, 1).get()
            for limit in _NEAR_BYTES
        )

        def behind(number: int) -> Expr:
            """Return how many rows a pass is behind the first one."""
            return tirx.Add(first, tirx.Mul(further, tirx.const(number - 1, index))) if number else zero

        turns = tirx.Add(self._count, behind(len(self._stages) - 1))
        with script.serial(turns) as turn:
            for number, stage in enumerate(self._stages):
                done = Local.of(tirx.Sub(turn, behind(number)), index, 1).get()
                inside = tirx.And(tirx.LE(zero, done), tirx.LT(done, self._count))
                with script.If(inside), script.Then():
                    row = Local.of(tirx.Add(self._begin, done), index, 1).get()
                    kernel, memory, scalars = start(number, row)
                    slot = Local.of(script.bitwise_and(done, tirx.const(MOST_PASSES - 1, index)), index, 1).get()
                    for node in stage.needed:
                        scalars.keep(node, self._ring[node].at(slot).get())
                    scalars.compute(*stage.phase.setup)
                    asks = None
                    if stage.phase is ahead[0]:
                        asks = Local.of(tirx.Mul(ahead[1], tirx.Add(one, behind(number))), index, 1).get()
                    RowLoop(kernel, stage.phase, memory, scalars, self._outputs, asks).emit()
                    scalars.compute(*stage.phase.scalars)
                    for node in stage.kept:
                        self._ring[node].at(slot).set(scalars.value(node))
                    finish(number, scalars, row, stage.outputs)
