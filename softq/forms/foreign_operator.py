"""Operators of a foreign domain that are only called like a softmax: what they compute is theirs to say."""

from __future__ import annotations

import re

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.attention_operator import match as match_attention
from softq.forms.bias_softmax import match as match_bias_softmax
from softq.forms.inner_softmax import match as match_inner
from softq.forms.matching.facts import Facts
from softq.forms.microsoft_attention import match as match_microsoft_attention
from softq.forms.microsoft_multi_head_attention import match as match_multi_head_attention
from softq.graph.queries import node_label, operator_label
from softq.site import Verdict

_NAMES = re.compile(r"soft_?max|hard_?max|attention|attn", re.IGNORECASE)
_WITHOUT_SOFTMAX = frozenset({"LinearAttention", "LinearAttentionGate"})
_KNOWN = (
    match_attention,
    match_bias_softmax,
    match_inner,
    match_microsoft_attention,
    match_multi_head_attention,
)


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a foreign operator by its name, unless the model says what it computes or a rule knows it."""
    if node.domain in {"", "softq"} or node.op_identifier() in facts.view.model.functions:
        return None
    if not _NAMES.search(node.op_type) or node.op_type in _WITHOUT_SOFTMAX:
        return None
    if any(known(node, facts) is not None for known in _KNOWN):
        return None
    what = f"what an operator of domain {node.domain} computes is not known"
    reason = f"node {node_label(node)} is a {operator_label(node)}: {what}"
    return Match(operator_label(node), None, None, None, Verdict("refuse", reason))


FORM = Form(
    name="foreign-operator",
    summary="Operators of unknown domains that are called like a softmax",
    match=match,
    verdict="refuse",
)
