"""Exponentials times the reciprocal of their sum."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import match_quotient, open_quotients
from softq.forms.matching.exponentials import number
from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import follow
from softq.forms.matching.quotients import Quotient, find_quotient
from softq.graph.queries import is_op, operand, producer


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the product."""
    found = _find(node, facts)
    return None if found is None else match_quotient(node, "Exp/ReduceSum/Reciprocal/Mul", found, facts)


def open_product(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Write each as a softmax."""
    return open_quotients(model, nodes, _find)


def _find(node: ir.Node, facts: Facts) -> Quotient | None:
    for index in (0, 1) if is_op(node, "Mul") else ():
        above, inverse = operand(node, index), operand(node, 1 - index)
        if above is None or inverse is None:
            continue
        behind = follow(inverse, facts)
        below = _inverted(producer(behind.source, "Reciprocal", "Div"))
        found = None if below is None else find_quotient(above, below, node.outputs[0], facts, behind.path)
        if found is not None:
            return found
    return None


def _inverted(node: ir.Node | None) -> ir.Value | None:
    if node is None:
        return None
    if is_op(node, "Reciprocal"):
        return operand(node, 0)
    return operand(node, 1) if number(operand(node, 0)) == 1 else None


FORM = Form(
    name="exp-times-reciprocal",
    summary="Exponentials times the reciprocal of their sum",
    match=match,
    open=open_product,
)
