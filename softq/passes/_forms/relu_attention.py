"""Attention whose weights are the operator Relu of the scores."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Form, Match
from softq.passes._forms._facts import Facts
from softq.passes._forms._own import match_weights


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the Relu."""
    return match_weights(node, "Relu", facts)


FORM = Form(
    name="relu-attention",
    summary="Rectified scores as weights of attention, their divisor left where it is (method relu)",
    match=match,
    own=("relu", {"power": 1, "divisor": 1}),
)
