"""Operators that are no attention but hold a softmax: expert routers, samplers, losses, classic classifiers."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operator_label
from softq.site import Verdict

_WHY = {
    ("com.microsoft", "MoE"): "the router of a mixture of experts: another expert is a discrete error",
    ("com.microsoft", "QMoE"): "the router of a mixture of experts: another expert is a discrete error",
    ("com.microsoft", "Sampling"): "a sampler: its probabilities are drawn from",
    ("com.microsoft", "BeamSearch"): "a search, which adds up the logarithms of a softmax",
    ("com.microsoft", "WhisperBeamSearch"): "a search, which adds up the logarithms of a softmax",
    ("com.microsoft", "GreedySearch"): "a search, which chooses tokens by their scores",
    ("", "SoftmaxCrossEntropyLoss"): "a training loss, which takes the logarithm of its softmax",
    ("com.microsoft", "SoftmaxCrossEntropyLoss"): "a training loss, which takes the logarithm of its softmax",
    ("com.microsoft", "SoftmaxCrossEntropyLossInternal"): "a training loss, which takes the logarithm of its softmax",
}


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise an operator whose softmax is left as it is."""
    if node.op_identifier() in facts.view.model.functions:
        return None
    why = _WHY.get((node.domain, node.op_type))
    transform = node.attributes.get("post_transform") if node.domain == "ai.onnx.ml" else None
    if transform is not None and not transform.is_ref():
        # TreeEnsemble has numbers there: 1 is SOFTMAX, 3 SOFTMAX_ZERO.
        named = {1: "SOFTMAX", 3: "SOFTMAX_ZERO"}.get(transform.value, str(transform.value))
        why = f"a classifier with post_transform {named}" if named.startswith("SOFTMAX") else why
    if why is None:
        return None
    reason = f"not yet: node {node_label(node)} is {why}; the softmax is inside the operator"
    return Match(operator_label(node), None, None, None, Verdict("keep", reason))


FORM = Form("inner-softmax", "Routers, samplers and classifiers with a softmax inside (kept)", match, verdict="keep")
