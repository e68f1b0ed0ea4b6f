"""The operator LogSoftmax."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Form, Match
from softq.passes._forms._facts import Facts
from softq.passes._forms._operators import find_axis
from softq.passes._graph import is_op, node_label, operand
from softq.site import Verdict


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a LogSoftmax."""
    if not is_op(node, "LogSoftmax"):
        return None
    reason = f"not yet: node {node_label(node)} is a LogSoftmax, and a weight of zero would become -inf"
    axis = find_axis(node, facts).axis
    return Match("LogSoftmax", operand(node, 0), node.outputs[0], axis, Verdict("refuse", reason))


FORM = Form(name="log-softmax", summary="LogSoftmax (not converted yet)", match=match)
