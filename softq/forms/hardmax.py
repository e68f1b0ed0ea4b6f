"""The operator Hardmax: a one at the first maximum."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.operators import find_axis
from softq.graph.facts import Facts
from softq.graph.queries import is_op, node_label, operand
from softq.site import Verdict


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a Hardmax."""
    if not is_op(node, "Hardmax"):
        return None
    reason = f"node {node_label(node)} is a Hardmax: it has no exponential and no division to replace"
    return Match("Hardmax", operand(node, 0), node.outputs[0], find_axis(node, facts).axis, Verdict("keep", reason))


FORM = Form(name="hardmax", summary="Hardmax, which has nothing to replace", match=match, verdict="keep")
