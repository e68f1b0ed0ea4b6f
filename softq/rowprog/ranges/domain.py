"""What the inputs of a program may be: one cell for anything, or many (`softq.rowprog.ranges.cells`)."""

from __future__ import annotations

from dataclasses import dataclass

from softq.rowprog.program import Node, Program
from softq.rowprog.ranges.bounds import Bools, Bounds, whole
from softq.rowprog.types import DType


@dataclass(frozen=True, eq=False)
class Domain:
    """The cells of the inputs.

    Attributes:
        scores: The scores of each cell.
        valid: The mask of each cell, if the program has one.
        key: A `row_max` whose value tells the cells of the row apart; None if there is one cell.
        maxima: Its value in each.
        attains: Which cells of the element attain that maximum; a row that is not empty has such an element.
    """

    scores: Bounds
    valid: Bounds | None
    key: Node | None = None
    maxima: Bounds | None = None
    attains: Bools | None = None


def anything(program: Program) -> Domain:
    """Return the domain of one cell."""
    return Domain(whole(program.scores), whole(DType.BOOL) if program.masked else None)
