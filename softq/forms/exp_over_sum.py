"""Exponentials divided by their sum, with or without their maximum subtracted."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.decomposed import make_form
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.layout_ops import follow
from softq.forms.matching.quotients import find_quotient
from softq.graph.facts import Facts
from softq.graph.patterns import match


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    result = node.outputs[0]
    found = match(result, "Div(e, total)")
    if found is None:
        return None
    return find_quotient(follow(found["e"], facts), follow(found["total"], facts), result, facts)


FORM = make_form(
    "exp-over-sum",
    "Exp/ReduceSum/Div",
    "Exponentials over their sum; a constant in the sum becomes one more score",
    _find,
)
