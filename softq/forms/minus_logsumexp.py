"""A LogSoftmax written out: scores less the logarithm of the sum of their exponentials."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.decomposed import make_form, read_by_exp_only
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.quotients import find_log_quotient
from softq.graph.facts import Facts


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    # The exponential of such a difference is a form of its own.
    return None if read_by_exp_only(node.outputs[0], facts) else find_log_quotient(node.outputs[0], facts)


FORM = make_form(
    "minus-logsumexp",
    "ReduceLogSumExp/Sub",
    "x - logsumexp(x), a LogSoftmax written out (for methods that give logarithms)",
    _find,
    stage=2,
    logarithm=True,
)
