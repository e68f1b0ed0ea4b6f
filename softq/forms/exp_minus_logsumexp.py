"""The exponential of scores less the logarithm of the sum of their exponentials."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from softq.forms.matching.decomposed import make_form
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.layout_ops import Moved, follow
from softq.forms.matching.quotients import find_log_quotient
from softq.graph.facts import Facts
from softq.graph.patterns import match


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    exponential = match(node.outputs[0], "Exp(x)")
    if exponential is None:
        return None
    behind = follow(exponential["x"], facts)
    found = find_log_quotient(behind.source, facts)
    return found and replace(found, moved=Moved(found.moved.source, (*found.moved.path, *behind.path)))


FORM = make_form(
    "exp-minus-logsumexp",
    "ReduceLogSumExp/Sub/Exp",
    "Exp(x - logsumexp(x)), the latter as an operator or written out",
    _find,
    stage=1,
)
