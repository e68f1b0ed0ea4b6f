"""Operators of a foreign domain that are only called like a softmax: what they compute is theirs to say."""

from __future__ import annotations

import re

import onnx_ir as ir

from softq.forms import Form, Match
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operator_label
from softq.site import Verdict

_NAMES = re.compile(
    r"soft_?max|hard_?max|attention|attn|mhc?a|qkv_?to_?context|sdpa|router|beam_?search|greedy_?search|cross_?entropy",
    re.IGNORECASE,
)
_WITHOUT_SOFTMAX = frozenset({"LinearAttention", "LinearAttentionGate"})


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a foreign operator by its name, unless the model says what it computes."""
    if node.domain in {"", "softq"} or node.op_identifier() in facts.view.model.functions:
        return None
    # ATen and PythonOp have the name of the function that they call in an attribute.
    called = [node.op_type, *(node.attributes.get_string(name, "") or "" for name in ("operator", "func_name"))]
    if not any(map(_NAMES.search, called)) or node.op_type in _WITHOUT_SOFTMAX:
        return None
    what = f"what an operator of domain {node.domain} computes is not known"
    reason = f"node {node_label(node)} is a {operator_label(node)}: {what}"
    return Match(operator_label(node), None, None, None, Verdict("refuse", reason))


FORM = Form(
    "foreign-operator",
    "Operators of unknown domains that are called like a softmax",
    match,
    verdict="refuse",
    last=True,
)
