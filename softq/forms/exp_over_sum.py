"""Exponentials divided by their sum, with or without their maximum subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import match_quotient, open_quotients
from softq.forms.matching.facts import Facts
from softq.forms.matching.quotients import Quotient, find_quotient
from softq.graph.queries import is_op, operand


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the division."""
    found = _find(node, facts)
    return None if found is None else match_quotient(node, "Exp/ReduceSum/Div", found, facts)


def open_quotient(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Write each as a softmax."""
    return open_quotients(model, nodes, _find)


def _find(node: ir.Node, facts: Facts) -> Quotient | None:
    return find_quotient(operand(node, 0), operand(node, 1), node.outputs[0], facts) if is_op(node, "Div") else None


FORM = Form(
    name="exp-over-sum",
    summary="Exponentials over their sum; a constant in the sum becomes one more score",
    match=match,
    open=open_quotient,
)
