"""The operator Softmax below opset 13 with another axis than the last: all axes from there on are one row."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.operators import find_axis, match_operator
from softq.graph.facts import Facts
from softq.graph.queries import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a Softmax whose row spans several axes."""
    return match_operator(node, facts) if is_op(node, "Softmax") and find_axis(node, facts).flattened else None


FORM = Form(name="softmax-flattened", summary="Softmax below opset 13 whose row spans several axes", match=match)
