"""The operator Softmax over one axis: opset 13 and later, or earlier with the last axis."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Form, Match
from softq.passes._forms._facts import Facts
from softq.passes._forms._operators import find_axis, match_operator
from softq.passes._graph import is_op


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a Softmax whose row is one axis, or whose axis cannot be told."""
    if not is_op(node, "Softmax"):
        return None
    axis = find_axis(node, facts)
    return None if axis.flattened else match_operator(node, axis, facts)


FORM = Form(name="softmax", summary="Softmax over one axis", match=match)
