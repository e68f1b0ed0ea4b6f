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
        rows: The rows.
    """

    def __init__(self, kernel: KernelContext, found: Sequence[Stage], outputs: Mapping[str, Node], rows: Rows) -> None:
        self.kernel, self.stages, self._outputs, self.rows = kernel, found, outputs, rows
        self.ring = {node: Local.empty(type_name(node.dtype), MOST_PASSES) for stage in found for node in stage.kept}

    def emit(self, ahead: tuple[Phase | None, Expr]) -> None:
        """Emit the rows.

        Args:
            ahead: Which pass asks for the next row of scores, and how far behind its own they stand.
        """
        one = self.number(1)
        first, further = (self.choose(self.rows_have(limit), one, self.number(0)) for limit in _NEAR_BYTES)

        def behind(number: int) -> Expr:
            """Return how many rows a pass is behind the first one."""
            more = tirx.Mul(further, self.number(number - 1))
            return tirx.Add(first, more) if number else self.number(0)

        turns = tirx.Add(self.rows.count, behind(len(self.stages) - 1))
        with script.serial(turns) as turn:
            for number, stage in enumerate(self.stages):
                done = self.position(tirx.Sub(turn, behind(number)))
                with script.If(self.is_inside(done)), script.Then():
                    asks = None
                    if stage.phase is ahead[0]:
                        asks = self.position(tirx.Mul(ahead[1], tirx.Add(one, behind(number))))
                    place = self.open(number, done, asks)
                    place.loop.emit()
                    self.close(number, place)
                    self.rows.next(number)

    def open(self, number: int, done: Expr, asks: Expr | None = None) -> Place:
        """Return a pass over the row that is so far from the first one, with what earlier passes computed of it."""
        stage = self.stages[number]
        row = self.position(tirx.Add(self.rows.begin, done))
        kernel, memory, scalars = self.rows.start(number, row)
        slot = self.slot_of(done)
        for node in stage.needed:
            scalars.keep(node, self.ring[node].at(slot).get())
        scalars.compute(*stage.phase.setup)
        return Place(row, slot, scalars, RowLoop(kernel, stage.phase, memory, scalars, self._outputs, asks))

    def close(self, number: int, place: Place) -> None:
        """Emit what follows the elements of a pass."""
        stage = self.stages[number]
        place.scalars.compute(*stage.phase.scalars)
        for node in stage.kept:
            self.ring[node].at(place.slot).set(place.scalars.value(node))
        self.rows.write(place.scalars, place.row, stage.outputs)

    def is_inside(self, done: Expr) -> Expr:
        """Say whether there is a row so far from the first one."""
        return tirx.And(tirx.LE(self.number(0), done), tirx.LT(done, self.rows.count))

    def rows_have(self, most: int) -> Expr:
        """Say whether a row has at most so many bytes of scores."""
        return tirx.LE(tirx.Mul(self.kernel.length, self.number(self.rows.score_bits // 8)), self.number(most))

    def slot_of(self, done: Expr) -> Expr:
        """Return the place in the ring of the row that is so far from the first one."""
        return self.position(script.bitwise_and(done, self.number(MOST_PASSES - 1)))

    def position(self, x: Expr) -> Expr:
        """Return a position that may be used many times."""
        return Local.of(x, self.kernel.index, 1).get()

    def choose(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """Return one position or the other."""
        return self.position(tirx.Select(condition, a, b))

    def number(self, value: int) -> Expr:
        """Return a position that is known."""
        return tirx.const(value, self.kernel.index)


@dataclass(frozen=True)
class Rows:
    """The rows, and what is asked of them.

    Attributes:
        begin: Number of the first row.
        count: How many there are.
        score_bits: Width of a score.
        start: Gives what a pass needs of the row with a number.
        write: Writes the outputs of these names, numbers of the row with a number.
        next: Goes to the next row of a pass.
    """

    begin: Expr
    count: Expr
    score_bits: int
    start: Callable[[int, Expr], tuple[KernelContext, RowMemory, Emission]]
    write: Callable[[Emission, Expr, Sequence[str]], None]
    next: Callable[[int], None]


@dataclass(frozen=True)
class Place:
    """A pass over a row: the row's number, its place in the ring, its scalars and its elements."""

    row: Expr
    slot: Expr
    scalars: Emission
    loop: RowLoop
