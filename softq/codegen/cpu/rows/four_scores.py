"""Scores of 8 bits, four in a word, for processors that compute on the bytes of a word.

It takes an instruction or two for four scores to find the greatest ones, and to subtract them from the greatest one.
The functions stand in C before the kernels (`codegen.c.prelude`), which ask there whether the processor has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.common import carriers
from softq.codegen.cpu.rows.accumulators import Accumulators
from softq.codegen.cpu.rows.block_results import Write
from softq.codegen.cpu.rows.emission import Emission, KernelContext
from softq.codegen.cpu.rows.load_store import Line, RowMemory
from softq.codegen.cpu.rows.tir import Local, cast, reinterpret
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, walk
from softq.rowprog.types import Kind

PER_WORD = 4
_WORD = "uint32"
_BYTE = 8


def has_dsp() -> Expr:
    """Return whether the processor computes on the bytes of a word, which the text of C knows when it is compiled."""
    return tirx.call_pure_extern("bool", "has_dsp")


class FourScores:
    """The scores that a turn of a loop reads.

    Args:
        scores: The input.
        line: Where they stand.
        scalars: Where the row's scalars are.
        differences: The row values that are a scalar less the score, between 0 and 255.
        extremes: The accumulators of extremes of the scores.
        needed: The other row values that are computed, and what they are read from.
    """

    def __init__(
        self,
        scores: Node,
        line: Line,
        scalars: Emission,
        differences: Sequence[Node],
        extremes: Sequence[Accumulators],
        needed: frozenset[Node],
    ) -> None:
        self.extremes, self.needed = extremes, needed
        self._scores, self._line, self._scalars, self._differences = scores, line, scalars, differences
        self._words: dict[Node, Local] = {}
        self._at_hand: dict[Node, Local] = {}

    @staticmethod
    def of(
        kernel: KernelContext,
        phase: Phase,
        row: RowMemory,
        scalars: Emission,
        writes: Sequence[Write],
        sums: Sequence[Accumulators],
    ) -> FourScores | None:
        """Return what is computed of four scores at once in a pass; None if nothing is."""
        scores = next((node for node in phase.loads if _is_byte_score(node)), None)
        if scores is None or not kernel.processor.has_bytes_of_words:
            return None
        extremes = [s for s in sums if s.node.op in _EXTREMES and _uncast(s.node.args[0]) is scores]
        differences = [node for node in phase.rows if _is_difference(node, scores, kernel)]
        if not extremes and not differences:
            return None
        roots = [w.node for w in writes] + [arg for s in sums if s not in extremes for arg in s.node.args]
        needed = frozenset(walk(roots, set(differences)))
        return FourScores(scores, row.scores, scalars, differences, extremes, needed)

    def begin(self) -> None:
        """Emit what comes before the loop."""
        byte = self._scores.dtype
        for s in self.extremes:
            least = byte.low if s.node.op == "row_max" else byte.high
            self._words[s.node] = Local.of(tirx.const((least & 0xFF) * 0x01010101, _WORD), _WORD, 1)
        for node in self._differences:
            x = script.bitwise_and(self._scalars.arg(node.args[0], _WORD), tirx.const(0xFF, _WORD))
            self._words[node] = Local.of(tirx.Mul(x, tirx.const(0x01010101, _WORD)), _WORD, 1)

    def load(self, at: Expr) -> None:
        """Read the scores from a position on, take them into the extremes, and subtract them."""
        address = self._line.memory.address(self._line.at(at))
        self._at_hand = {self._scores: Local.of(tirx.call_pure_extern(_WORD, "load_four", address), _WORD, 1)}
        for s in self.extremes:
            self._take(s, self._at_hand[self._scores].get())
        for node in self._differences:
            x = tirx.call_pure_extern(_WORD, "sub_four", self._words[node].get(), self._at_hand[self._scores].get())
            self._at_hand[node] = Local.of(x, _WORD, 1)

    def bind(self, e: Emission, number: int) -> None:
        """Let a score of the four, and what is computed of it, be the element's."""
        for node, word in self._at_hand.items():
            if node in self.needed or node is not self._scores:
                e.keep(node, self._byte(word, number, self._scores is node and node.dtype.low < 0, e.type_of(node)))

    def finish(self) -> None:
        """Emit what comes behind the loop: the accumulators take in the extremes of the four."""
        for s in self.extremes:
            word = self._words[s.node]
            for distance in (2, 1):
                below = script.shift_right(word.get(), tirx.const(distance * _BYTE, _WORD))
                above = script.shift_left(word.get(), tirx.const((PER_WORD - distance) * _BYTE, _WORD))
                self._take(s, script.bitwise_or(below, above))
            s.take(self._byte(word, 0, self._scores.dtype.low < 0, s.name))

    def _take(self, s: Accumulators, x: Expr) -> None:
        name = f"{s.node.op.removeprefix('row_')}_four_{self._scores.dtype.numpy.name}"
        word = self._words[s.node]
        word.set(tirx.call_pure_extern(_WORD, name, word.get(), x))

    def _byte(self, word: Local, number: int, signed: bool, name: str) -> Expr:
        x = script.shift_right(word.get(), tirx.const(number * _BYTE, _WORD))
        x = cast(x, _WORD, "uint8", 1)
        return cast(reinterpret(x, "int8", 1), "int8", name, 1) if signed else cast(x, "uint8", name, 1)


_EXTREMES = ("row_max", "row_min")


def _is_byte_score(node: Node) -> bool:
    return node.op == "input" and node.attrs["name"] == "scores" and node.dtype.is_integer and node.dtype.bits == _BYTE


def _uncast(node: Node) -> Node:
    """Return what integers are that keep their values in other types."""
    while node.op == "cast" and node.dtype.is_integer and node.args[0].dtype.is_integer:
        node = node.args[0]
    return node


def _is_difference(node: Node, scores: Node, kernel: KernelContext) -> bool:
    """Say whether a value is a scalar less the score that a byte holds: then bytes that wrap give it exactly."""
    if node.op != "sub" or node.args[0].kind is not Kind.SCALAR or _uncast(node.args[1]) is not scores:
        return False
    low, high = carriers.interval(node, kernel.proof)
    return low >= 0 and high < 1 << _BYTE
