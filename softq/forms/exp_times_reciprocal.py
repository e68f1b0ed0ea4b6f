"""Exponentials times the reciprocal of their sum."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.decomposed import make_form
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.layout_ops import follow
from softq.forms.matching.quotients import find_inverted, find_quotient
from softq.graph.facts import Facts
from softq.graph.patterns import matches


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    result = node.outputs[0]
    for product in matches(result, "Mul(e, inverse) | Mul(inverse, e)"):
        total = find_inverted(product["inverse"], facts)
        found = None if total is None else find_quotient(follow(product["e"], facts), total, result, facts)
        if found is not None:
            return found
    return None


FORM = make_form(
    "exp-times-reciprocal", "Exp/ReduceSum/Reciprocal/Mul", "Exponentials times the reciprocal of their sum", _find
)
