"""The forms that are written out: from what is found to a match, and from a match to a softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx_ir as ir

from softq.errors import RefusalError
from softq.forms import Form, Inside, Match, Open, refuse
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.layout_ops import Moved, follow, is_plain
from softq.forms.matching.opening import Opener
from softq.forms.matching.operators import find_axis, find_refusal
from softq.graph.facts import Facts
from softq.graph.queries import is_op, node_label, operand
from softq.graph.rewriter import Rewriter

Find = Callable[[ir.Node, Facts], Decomposed | None]

OLDEST_OPSET = 7
"""Below, operators had broadcasting of their own, by attributes."""

_MOST_MOVES = 16
"""Nodes that may move a logarithm before its exponential is taken."""


def make_form(name: str, operator: str, summary: str, find: Find, *, stage: int = 0, logarithm: bool = False) -> Form:
    """Return the form of what `find` finds.

    Args:
        name: As in `Form`.
        operator: The operators that are one softmax together.
        summary: As in `Form`.
        find: Returns the softmax that ends in a node.
        stage: As in `Form`.
        logarithm: Whether it is the logarithm of a softmax.
    """

    def match(node: ir.Node, facts: Facts) -> Match | None:
        found = find(node, facts) if node.outputs else None
        return None if found is None else replace(match_decomposed(node, operator, found, facts), logarithm=logarithm)

    return Form(name, summary, match, make_opener(find, logarithm=logarithm), stage=stage)


def make_opener(find: Find, *, logarithm: bool = False) -> Open:
    """Return what writes each softmax that `find` finds as an operator; see `Form.open`."""

    def open_all(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
        rewriter = Rewriter(model)

        def open_one(node: ir.Node) -> ir.Node:
            if node.graph is None:
                return node
            found = find(node, rewriter.facts)
            if found is None:
                # Others were opened, and the model was raised.
                why = "is part of another that was opened"
                raise RefusalError(f"the softmax that ends in node {node_label(node)} {why}")
            return Opener(rewriter, node).open(found, logarithm=logarithm)

        # The last node first: it may hold one before it, which is gone then and stands for itself.
        return [open_one(node) for node in reversed(nodes)][::-1]

    return open_all


def read_operator(operator: ir.Node, behind: Moved, facts: Facts) -> Decomposed | None:
    """Return the softmax that a LogSoftmax is the logarithm of; its weights are moved behind the operator."""
    scores, axis = operand(operator, 0), find_axis(operator, facts).axis
    return None if scores is None else Decomposed(scores, None if axis is None else (axis,), behind)


def match_decomposed(node: ir.Node, operator: str, found: Decomposed, facts: Facts) -> Match:
    """Return the match of a softmax that ends in a node."""
    refusal = found.refusal and f"the softmax that ends in node {node_label(node)} is written out: {found.refusal}"
    opset = facts.view.container_of(node).opset
    if opset < OLDEST_OPSET:
        why = f"below {OLDEST_OPSET} operands were broadcast by other rules"
        refusal = f"node {node_label(node)} has opset {opset}, and {why}"
    refusal = refusal or find_refusal(node, found.scores, facts)
    note, axes = found.note, found.axes
    if axes is not None and len(axes) > 1:
        note = f"its row spans {len(axes)} axes" + (f"; {note}" if note else "")
    plain, exponential = is_plain(found.moved.path), found.exponential
    match = Match(
        operator,
        found.scores if plain else None,
        node.outputs[0],
        axes[0] if axes and plain else None,
        refuse(refusal),
        note,
    )
    # The order of the weights is that of the scores only if they are what the exponentials are of.
    if exponential is None or exponential.is_plain:
        return match
    # What is struck out is a mask only once it is opened.
    kind = "none" if exponential.mask is None else "where"
    inside = Inside(facts.dtype(found.scores), facts.shape(node.outputs[0]), kind, "nan")
    return replace(match, scores=None, inside=inside)


def read_by_exp_only(value: ir.Value, facts: Facts) -> bool:
    """Whether all that is made of a logarithm, behind at most `_MOST_MOVES` nodes that move it, is its exponential."""
    waiting = [value]
    for moved in waiting:
        readers = moved.consumers()
        if moved.is_graph_output() or not readers or len(waiting) > _MOST_MOVES:
            return False
        for reader in readers:
            if is_op(reader, "Exp"):
                continue
            if not reader.outputs or operand(reader, 0) is not moved:
                return False
            if not follow(reader.outputs[0], facts, 1, any_reshape=True).path:
                return False
            waiting.append(reader.outputs[0])
    return True
