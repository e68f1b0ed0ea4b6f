"""The operator LogSoftmax."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import make_opener, read_by_exp_only, read_operator
from softq.forms.matching.layout_ops import Moved
from softq.forms.matching.operators import match_operator
from softq.graph.facts import Facts
from softq.graph.queries import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a LogSoftmax, unless all that is made of it is its exponential, which is a form of its own."""
    if not is_op(node, "LogSoftmax") or read_by_exp_only(node.outputs[0], facts):
        return None
    return replace(match_operator(node, facts), logarithm=True)


FORM = Form(
    "log-softmax",
    "LogSoftmax (for methods that give logarithms)",
    match,
    make_opener(lambda node, facts: read_operator(node, Moved(node.outputs[0], ()), facts), logarithm=True),
    stage=2,
)
