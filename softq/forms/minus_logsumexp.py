"""A LogSoftmax written out: scores less the logarithm of the sum of their exponentials."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import match_logarithm, open_logarithms, read_by_exp_only
from softq.forms.matching.facts import Facts
from softq.forms.matching.logarithms import LogQuotient, find_log_quotient
from softq.graph.queries import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the difference, unless all that is made of it is its exponential, which is a form of its own."""
    found = _find(node, facts)
    if found is None or read_by_exp_only(node.outputs[0], facts):
        return None
    return match_logarithm(node, "ReduceLogSumExp/Sub", found, facts, logarithm=True)


def open_difference(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Write each as the logarithm of a softmax."""
    return open_logarithms(model, nodes, _find, logarithm=True)


def _find(node: ir.Node, facts: Facts) -> LogQuotient | None:
    return find_log_quotient(node, facts) if is_op(node, "Sub") else None


FORM = Form(
    name="minus-logsumexp",
    summary="x - logsumexp(x), a LogSoftmax written out (for methods that give logarithms)",
    match=match,
    open=open_difference,
    stage=2,
)
