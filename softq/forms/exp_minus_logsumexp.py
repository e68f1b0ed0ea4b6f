"""The exponential of scores less the logarithm of the sum of their exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import match_logarithm, open_logarithms
from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import Moved, follow
from softq.forms.matching.logarithms import LogQuotient, find_log_quotient
from softq.graph.queries import is_op, operand, producer


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the exponential."""
    found = _find(node, facts)
    return None if found is None else match_logarithm(node, "ReduceLogSumExp/Sub/Exp", found, facts)


def open_exponential(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Write each as a softmax."""
    return open_logarithms(model, nodes, _find, logarithm=False)


def _find(node: ir.Node, facts: Facts) -> LogQuotient | None:
    inside = operand(node, 0) if is_op(node, "Exp") else None
    if inside is None:
        return None
    behind = follow(inside, facts)
    found = find_log_quotient(producer(behind.source, "Sub"), facts)
    if found is None:
        return None
    return replace(found, moved=Moved(found.moved.source, (*found.moved.path, *behind.path)))


FORM = Form(
    name="exp-minus-logsumexp",
    summary="Exp(x - logsumexp(x)), the latter as an operator or written out",
    match=match,
    open=open_exponential,
    stage=1,
)
