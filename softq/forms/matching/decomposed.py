"""From what is found to a match, and from a match to a softmax: what the forms that are written out share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import onnx_ir as ir

from softq.errors import RefusalError
from softq.forms import Inside, Match
from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import Moved, follow, is_plain
from softq.forms.matching.logarithms import LogQuotient
from softq.forms.matching.opening import Opener, Row
from softq.forms.matching.operators import refusal_of
from softq.forms.matching.quotients import Quotient
from softq.graph.queries import is_op, node_label, operand
from softq.site import Verdict

Find = Callable[[ir.Node, Facts], Quotient | None]

OLDEST_OPSET = 7
"""Below, operators had broadcasting of their own, by attributes."""


def match_quotient(node: ir.Node, operator: str, found: Quotient, facts: Facts) -> Match:
    """Return the match of a quotient that ends in `node`."""
    # The order of the weights is that of the scores only if they are what the exponentials are of.
    plain = found.exponential.mask is None and found.exponential.factor == 1
    match = _match(node, operator, found.scores, found.axes, found.moved, found.refusal, found.note, facts)
    if plain:
        return match
    # What is struck out is a mask only once it is opened.
    kind = "none" if found.exponential.mask is None else "where"
    inside = Inside(facts.dtype(found.scores), facts.shape(node.outputs[0]), kind, "nan")
    return replace(match, scores=None, inside=inside)


def match_logarithm(
    node: ir.Node, operator: str, found: LogQuotient, facts: Facts, *, logarithm: bool = False
) -> Match:
    """Return the match of a difference, or of its exponential, that ends in `node`."""
    match = _match(node, operator, found.scores, found.axes, found.moved, found.refusal, found.note, facts)
    return replace(match, logarithm=logarithm)


def _match(
    node: ir.Node,
    operator: str,
    scores: ir.Value,
    axes: tuple[int, ...] | None,
    moved: Moved,
    why: str,
    note: str,
    facts: Facts,
) -> Match:
    refusal = why and f"the softmax that ends in node {node_label(node)} is written out: {why}"
    opset = facts.view.container_of(node).opset
    if opset < OLDEST_OPSET:
        refusal = (
            f"node {node_label(node)} has opset {opset}, and below {OLDEST_OPSET} operands were broadcast otherwise"
        )
    refusal = refusal or refusal_of(node, scores, facts)
    if axes is not None and len(axes) > 1:
        note = f"its row spans {len(axes)} axes" + (f"; {note}" if note else "")
    plain = is_plain(moved.path)
    return Match(
        operator,
        scores if plain else None,
        node.outputs[0],
        axes[0] if axes and plain else None,
        Verdict("refuse", refusal) if refusal else None,
        note,
    )


def read_by_exp_only(value: ir.Value, facts: Facts) -> bool:
    """Whether all that is made of a logarithm, behind nodes that move it, is its exponential."""
    readers = value.consumers()
    if value.is_graph_output() or not readers:
        return False
    for reader in readers:
        if is_op(reader, "Exp"):
            continue
        moves = bool(follow(reader.outputs[0], facts, 1, any_reshape=True).path) and operand(reader, 0) is value
        if not moves or not read_by_exp_only(reader.outputs[0], facts):
            return False
    return True


def open_quotients(model: ir.Model, nodes: Sequence[ir.Node], find: Find) -> list[ir.Node]:
    """Write each quotient as a softmax; see `Form.open`."""

    def write(opener: Opener, node: ir.Node) -> ir.Node:
        found = _still(find(node, opener.facts), node)
        assert found.axes is not None, "a row of unknown axes is refused"
        e = found.exponential
        sink = math.log(found.added) if found.added else None
        row = Row(found.scores, found.axes, e.factor, e.mask, e.counts_when, e.keeps_nan, sink)
        return opener.open(node, row, found.moved.path)

    return _open_each(model, nodes, write)


def open_logarithms(
    model: ir.Model,
    nodes: Sequence[ir.Node],
    find: Callable[[ir.Node, Facts], LogQuotient | None],
    *,
    logarithm: bool,
) -> list[ir.Node]:
    """Write each difference, or its exponential, as the logarithm of a softmax or as a softmax; see `Form.open`."""

    def write(opener: Opener, node: ir.Node) -> ir.Node:
        found = _still(find(node, opener.facts), node)
        assert found.axes is not None, "a row of unknown axes is refused"
        return opener.open(node, Row(found.scores, found.axes), found.moved.path, logarithm)

    return _open_each(model, nodes, write)


def _open_each(model: ir.Model, nodes: Sequence[ir.Node], write: Callable[[Opener, ir.Node], ir.Node]) -> list[ir.Node]:
    """Open the last node first: it may hold one before it, which is gone then and stands for itself."""
    opener = Opener(model)
    opened = [node if node.graph is None else write(opener, node) for node in reversed(nodes)]
    return opened[::-1]


T = TypeVar("T")


def _still(found: T | None, node: ir.Node) -> T:
    """Return what was located, if it is there after others were opened and the model was raised."""
    if found is None:
        raise RefusalError(f"the softmax that ends in node {node_label(node)} is part of another that was opened")
    return found
