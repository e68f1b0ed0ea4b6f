"""Cells: the inputs of a program with 8-bit scores, told apart.

An element of such a row has 256 states (with a mask 512), and of most programs all that the row adds to an element is
its maximum. Every pair of a maximum and a state is a cell of its own; the interval of each value is then found for each
cell, a single number for what depends on the pair alone. Other reductions are intervals, for each maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softq.rowprog.ops import names_of
from softq.rowprog.program import Node, Program, walk
from softq.rowprog.ranges import refine
from softq.rowprog.ranges.bounds import Array, Bools, Bounds, whole
from softq.rowprog.ranges.interval import UnprovedError
from softq.rowprog.ranges.rules import RULES, demand_of_operands, demand_of_result
from softq.rowprog.types import DType

_PURE = frozenset(RULES) - {"param", "assume"} - names_of("group") | {"input", "select"}


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


def cells(program: Program) -> Domain | None:
    """Return the cells of a program with 8-bit scores and a maximum of a function of them alone, else None."""
    if not program.scores.is_integer or program.scores.bits != 8:
        return None
    domain = _states(program)
    best: tuple[Node, Array] | None = None
    for node in program.nodes():
        with np.errstate(all="ignore"):
            values = _values(node.args[0], domain) if node.op == "row_max" else None
        if values is not None and (best is None or len(np.unique(values)) > len(np.unique(best[1]))):
            best = node, values
    if best is None:
        return None
    key, values = best
    maxima = np.unique(values)
    # A state above the maximum does not occur; one that attains it stands in for it.
    attaining = np.argmax(np.equal(values[None, :], maxima[:, None]), axis=1)
    lanes = np.where(
        np.less_equal(values[None, :], maxima[:, None]), np.arange(len(values))[None, :], attaining[:, None]
    )
    scores = domain.scores.low[0][lanes]
    valid = None if domain.valid is None else domain.valid.low[0][lanes]
    column = maxima[:, None]
    return Domain(
        scores=Bounds(scores, scores),
        valid=None if valid is None else Bounds(valid, valid),
        key=key,
        maxima=Bounds(column, column),
        attains=np.equal(values[lanes], column),
    )


def _states(program: Program) -> Domain:
    scores = np.arange(program.scores.low, program.scores.high + 1, dtype=np.int64)[None, :]
    if not program.masked:
        return Domain(Bounds(scores, scores), None)
    valid = np.repeat(np.array([[1, 0]], np.int64), scores.shape[-1], axis=-1)
    twice = np.concatenate([scores, scores], axis=-1)
    return Domain(Bounds(twice, twice), Bounds(valid, valid))


def _values(row: Node, states: Domain) -> Array | None:
    """Return the value of a row in each state, or None if it depends on more than the state."""
    known: dict[Node, Bounds] = {}
    try:
        for node in walk([row]):
            if node.op not in _PURE:
                return None
            known[node] = _value(node, states, known)
    except UnprovedError:
        return None  # The analysis of the whole program will say so.
    result = known[row]
    if not np.array_equal(result.low, result.high):
        return None
    return np.broadcast_to(result.low, states.scores.low.shape)[0]


def _value(node: Node, states: Domain, known: dict[Node, Bounds]) -> Bounds:
    if node.op == "input":
        bounds = states.scores if node.attrs["name"] == "scores" else states.valid
        assert bounds is not None
        return bounds
    if node.op == "select":
        return refine.choose(node, known.__getitem__)
    args = [known[arg] for arg in node.args]
    demand_of_operands(node, args)
    return demand_of_result(node, RULES[node.op](node, args))
