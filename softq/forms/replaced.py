"""Calls of softq's own functions: a softmax that an earlier conversion replaced."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operator_label
from softq.site import Verdict

DOMAIN = "softq"
"""Domain of the functions that `replace` puts in; their bodies are not looked into."""


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a call of a function of softq's domain."""
    del facts
    if node.domain != DOMAIN:
        return None
    reason = f"node {node_label(node)} was replaced before, by {operator_label(node)}"
    return Match(operator_label(node), None, None, None, Verdict("keep", reason))


FORM = Form(name="replaced", summary="A softmax that softq has replaced before", match=match, verdict="keep")
