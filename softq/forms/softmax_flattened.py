"""The operator Softmax below opset 13 with another axis than the last: all axes from there on are one row."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.facts import Facts
from softq.forms.matching.operators import find_axis, match_operator
from softq.graph.queries import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a Softmax whose row spans several axes."""
    if not is_op(node, "Softmax"):
        return None
    axis = find_axis(node, facts)
    if not axis.flattened or axis.axis is None:
        return None
    return replace(match_operator(node, axis, facts), note=f"its row spans the last {-axis.axis} axes")


FORM = Form(name="softmax-flattened", summary="Softmax below opset 13 whose row spans several axes", match=match)
