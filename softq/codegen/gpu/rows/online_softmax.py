"""Sums of exponentials beside the maximum that they are measured from, in one pass over rows that are read each time.

Each thread rescales what it has gathered when its own maximum rises, and all of them once more to the row's maximum:
e^-(m - x) = e^-(m' - x) e^-(m - m') (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from softq.codegen.gpu.dialect.text import F32, literal
from softq.codegen.gpu.rows.accumulators import Accumulator
from softq.codegen.gpu.rows.emission import Emission, KernelContext
from softq.codegen.gpu.rows.tiling import Tiling
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, number_of


@dataclass(frozen=True)
class ExponentialSum:
    """A sum of e^-(greatest - score).

    Attributes:
        node: The sum.
        scores: The row that is subtracted.
        top: The maximum of that row.
        greatest: What it is subtracted from: `top`, or the greater of that and a constant.
    """

    node: Node
    scores: Node
    top: Node
    greatest: Node


def merge_passes(passes: Sequence[Phase]) -> tuple[list[Phase], list[ExponentialSum]]:
    """Return the passes without a second one whose sums the first one can take along, and these sums."""
    if len(passes) < 3 or passes[1].outputs or passes[1].stored:
        return list(passes), []
    sums = [_sum_of(node) for node in passes[1].reductions]
    found = [one for one in sums if one is not None and one.top in passes[0].reductions]
    if not found or len(found) != len(passes[1].reductions):
        return list(passes), []
    after = replace(passes[1], loads=(), rows=(), reductions=())
    return [passes[0], after, *passes[2:]], found


def _sum_of(node: Node) -> ExponentialSum | None:
    if node.op != "row_sum" or node.args[0].op != "exp_minus":
        return None
    distance = node.args[0].args[0]
    if distance.op != "max" or distance.args[1].op != "const" or number_of(distance.args[1]) != 0:
        return None
    difference = distance.args[0]
    if difference.op != "sub":
        return None
    greatest, scores = difference.args
    top = greatest.args[0] if greatest.op == "max" and greatest.args[1].op == "const" else greatest
    return ExponentialSum(node, scores, top, greatest) if top.op == "row_max" and top.args[0] is scores else None


class OnlineSum:
    """A sum while the first pass is written.

    Args:
        kernel: What all places share.
        tiling: The kernel's shape.
        found: The sum.
        top: What gathers its maximum.
    """

    def __init__(self, kernel: KernelContext, tiling: Tiling, found: ExponentialSum, top: Accumulator) -> None:
        self._kernel, self._tiling, self._found, self._top = kernel, tiling, found, top
        self.total = Accumulator(kernel, found.node)
        self.total.start()
        self._scores, self._mine = kernel.text.name("chunk"), kernel.text.name("mine")
        kernel.text.line(f"{F32} {self._mine} = {self._limited(top.name)};")

    def _limited(self, top: str) -> str:
        greatest = self._found.greatest
        return f"GREATER({top}, {literal(number_of(greatest.args[1]), F32)})" if greatest.op == "max" else top

    def begin_chunk(self) -> None:
        """Make room for the scores of a chunk."""
        self._kernel.text.line(f"{F32} {self._scores}[{self._tiling.chunk}];")
        if not self._tiling.aligned and self._tiling.chunk > 1:
            nothing = literal(float("-inf"), F32)
            self._kernel.text.each(f"{self._scores}[e] = {nothing};", e=self._tiling.chunk)

    def add(self, place: Emission) -> None:
        """Take in the score of a place."""
        self._kernel.text.line(f"{self._scores}[e] = {place.arg(self._found.scores)};")

    def end_chunk(self) -> None:
        """Add a chunk's exponentials, measured from the thread's maximum."""
        text, name = self._kernel.text, self.total.name
        now = text.define(F32, self._limited(self._top.name), "now")
        text.line(f"{name} *= {_exponential(f'{now} - {self._mine}')};")
        text.line(f"{self._mine} = {now};")
        text.each(f"{name} += {_exponential(f'{now} - {self._scores}[e]')};", e=self._tiling.chunk)

    def rescale(self, scalars: Emission) -> None:
        """Measure what the thread has gathered from the row's maximum."""
        rise = f"{scalars.arg(self._found.greatest)} - {self._mine}"
        self._kernel.text.line(f"{self.total.name} *= {_exponential(rise)};")


def _exponential(distance: str) -> str:
    """Return e^-d; the difference of two infinities counts as 0."""
    return f"exp_minus(GREATER({distance}, 0.0f))"
