"""The proof that nothing in a program overflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softq.errors import ProofError, UsageError
from softq.rowprog.program import Node, Program
from softq.rowprog.ranges.analysis import Analysis
from softq.rowprog.ranges.cells import anything, cells
from softq.rowprog.ranges.interval import Interval
from softq.rowprog.text import node_to_text
from softq.rowprog.types import DType

_LONGEST = DType.I32.high


@dataclass(frozen=True)
class Proof:
    """What was proved of a program.

    Attributes:
        max_length: The proof holds for rows of 0 to this many elements.
        intervals: What each value lies in, for every row; the nodes of a scan's step included.
        filled: The same for rows of at least one element. Only scalars differ: the maximum of an empty row is the
            least value of its type, which says nothing of the width that a maximum needs.
        widest_bits: Bits that the widest integer value of a filled row needs: two's complement if it can be negative,
            else unsigned.
        widest: That value as the program's text has it.
    """

    max_length: int
    intervals: Mapping[Node, Interval]
    filled: Mapping[Node, Interval]
    widest_bits: int
    widest: str

    def interval(self, node: Node) -> Interval:
        """Return what a value of the program lies in."""
        return self.intervals[node]


def prove(program: Program, *, max_length: int = 65536) -> Proof:
    """Return the proof that every demand of every operator holds for rows of 0 to `max_length` elements.

    For 8-bit integer scores every pair of a maximum and a score is looked at by itself.

    Raises:
        ProofError: a demand could not be proved; one line that names the value, what it may be and what is allowed.
        UsageError: the length is not one that an i32 holds.
    """
    if not 0 <= max_length <= _LONGEST:
        raise UsageError(f"max_length is {max_length}; allowed is 0 to {_LONGEST}")
    intervals, filled = _analysis(program).intervals(max_length)
    integers = [node for node in filled if node.dtype.is_integer]
    widest = max(integers, key=lambda node: filled[node].bits, default=None)
    return Proof(
        max_length,
        intervals,
        filled,
        0 if widest is None else filled[widest].bits,
        "none" if widest is None else f"{node_to_text(program, widest)} in {filled[widest]}",
    )


def largest_length(program: Program, limit: int = _LONGEST) -> int:
    """Return the greatest N up to `limit` for which `prove` succeeds; 0 if it does for no row with elements."""
    analysis = _analysis(program)

    def proved(length: int) -> bool:
        try:
            analysis.intervals(length)
        except ProofError:
            return False
        return True

    low, high = 0, min(limit, _LONGEST)
    if proved(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if proved(middle) else (low, middle)
    return low


def _analysis(program: Program) -> Analysis:
    return Analysis(program, cells(program) or anything(program))
