"""The operator Softmax over one axis: opset 13 and later, or earlier with the last axis."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.facts import Facts
from softq.forms.matching.operators import find_axis, match_operator
from softq.graph.queries import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a Softmax whose row is one axis, or whose axis cannot be told."""
    if not is_op(node, "Softmax"):
        return None
    axis = find_axis(node, facts)
    return None if axis.flattened else match_operator(node, axis, facts)


FORM = Form(name="softmax", summary="Softmax over one axis", match=match)
