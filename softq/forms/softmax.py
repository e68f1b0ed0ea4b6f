"""The operator Softmax over one axis: opset 13 and later, or earlier with the last axis."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.operators import find_axis, match_operator
from softq.graph.facts import Facts
from softq.graph.queries import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a Softmax whose row is one axis, or whose axis cannot be told."""
    return match_operator(node, facts) if is_op(node, "Softmax") and not find_axis(node, facts).flattened else None


FORM = Form(name="softmax", summary="Softmax over one axis", match=match)
