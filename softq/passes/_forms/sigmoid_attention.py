"""Attention whose weights are the operator Sigmoid of the scores."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Form, Match
from softq.passes._forms._facts import Facts
from softq.passes._forms._own import match_weights


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the Sigmoid."""
    return match_weights(node, "Sigmoid", facts)


FORM = Form(
    name="sigmoid-attention",
    summary="Sigmoids of scores as weights of attention, their bias left in the scores (method sigmoid)",
    match=match,
    own=("sigmoid", {"bias": 0}),
)
