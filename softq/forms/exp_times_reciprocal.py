"""Exponentials times the reciprocal of their sum."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.decomposed import make_form
from softq.forms.matching.exponentials import Decomposed, read_number
from softq.forms.matching.layout_ops import follow
from softq.forms.matching.quotients import find_quotient
from softq.graph.facts import Facts
from softq.graph.patterns import match, matches


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    result = node.outputs[0]
    for product in matches(result, "Mul(e, inverse) | Mul(inverse, e)"):
        behind = follow(product["inverse"], facts)
        inverse = match(behind.source, "Reciprocal(total) | Div(one, total) | Pow(total, minus_one)")
        numbers = () if inverse is None else ((name, 1 if name == "one" else -1) for name in inverse if name != "total")
        if inverse is None or any(read_number(inverse[name]) != number for name, number in numbers):
            continue
        total = follow(inverse["total"], facts, path=behind.path)
        found = find_quotient(follow(product["e"], facts), total, result, facts)
        if found is not None:
            return found
    return None


FORM = make_form(
    "exp-times-reciprocal", "Exp/ReduceSum/Reciprocal/Mul", "Exponentials times the reciprocal of their sum", _find
)
