"""Exponentials that an LpNormalization brings to the sum 1."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.decomposed import make_form
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.quotients import find_normalized
from softq.graph.facts import Facts
from softq.graph.queries import is_op


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    p = node.attributes.get("p") if is_op(node, "LpNormalization") else None
    return find_normalized(node, facts) if p is not None and not p.is_ref() and p.as_int() == 1 else None


FORM = make_form(
    "exp-l1-normalized", "Exp/LpNormalization", "Exponentials over their sum by LpNormalization with p = 1", _find
)
