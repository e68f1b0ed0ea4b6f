"""Operators that hold a whole attention, the softmax among it, and the fused or quantized softmaxes of onnxruntime."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Form, Match
from softq.passes._forms._facts import Facts
from softq.passes._graph import node_label, operator_label
from softq.site import Verdict

_OPERATORS = {
    "": "Attention",
    "ai.onnx.preview": "FlexAttention",
    "com.microsoft": (
        "Attention MultiHeadAttention GroupQueryAttention PackedAttention PackedMultiHeadAttention PagedAttention "
        "DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention LongformerAttention "
        "QAttention QOrderedAttention QOrderedLongformerAttention SparseAttention AttnLSTM "
        "BiasSoftmax QLinearSoftmax"
    ),
    "com.ms.internal.nhwc": "QLinearSoftmax",
}
_KNOWN = frozenset((domain, name) for domain, names in _OPERATORS.items() for name in names.split())


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise an operator with a softmax inside that is not opened yet."""
    if (node.domain, node.op_type) not in _KNOWN or node.op_identifier() in facts.view.model.functions:
        return None
    reason = f"not yet: node {node_label(node)} is a {operator_label(node)}, and the softmax is inside the operator"
    return Match(operator_label(node), None, None, None, Verdict("refuse", reason))


FORM = Form(name="attention-operator", summary="Operators with a softmax inside (not opened yet)", match=match)
