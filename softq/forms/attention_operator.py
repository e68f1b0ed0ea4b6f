"""Operators that hold a whole attention, the softmax among it, and are not opened: each with the reason."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operator_label
from softq.site import Verdict

_NO_KERNEL = "onnxruntime has no CPU kernel of it to compare with"
_PACKED = f"its rows are packed one after the other, without padding, and {_NO_KERNEL}"
_SPARSE = "its softmax is over the blocks of keys that a sparse layout selects, not over all keys"
_CACHE = "it writes into a cache of fixed size, of which only an input says how many keys count"
_INTEGERS = "it multiplies by its weights in integers"
_WHY = {
    ("ai.onnx.preview", "FlexAttention"): "it is a preview, whose meaning may still change",
    ("com.microsoft", "AttnLSTM"): "its softmax is inside the steps of an LSTM",
    ("com.microsoft", "DecoderAttention"): _NO_KERNEL,
    ("com.microsoft", "DecoderMaskedMultiHeadAttention"): _CACHE,
    ("com.microsoft", "DecoderMaskedSelfAttention"): _CACHE,
    ("com.microsoft", "DynamicSparseAttention"): _SPARSE,
    ("com.microsoft", "LongformerAttention"): _SPARSE,
    ("com.microsoft", "PackedAttention"): _PACKED,
    ("com.microsoft", "PackedMultiHeadAttention"): _PACKED,
    ("com.microsoft", "PagedAttention"): "its keys and values are stored in pages, found by a table",
    ("com.microsoft", "QAttention"): _INTEGERS,
    ("com.microsoft", "QLinearSoftmax"): "it computes in integers already, with a table of its own",
    ("com.microsoft", "QOrderedAttention"): f"{_INTEGERS}, and {_NO_KERNEL}",
    ("com.microsoft", "QOrderedLongformerAttention"): f"{_INTEGERS}, and {_NO_KERNEL}",
    ("com.microsoft", "SparseAttention"): _SPARSE,
    ("com.microsoft", "SparsePagedAttention"): _SPARSE,
    ("com.ms.internal.nhwc", "QLinearSoftmax"): "it computes in integers already, with a table of its own",
}


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise an operator with a softmax inside that is not opened."""
    why = _WHY.get((node.domain, node.op_type))
    if why is None or node.op_identifier() in facts.view.model.functions:
        return None
    reason = f"not yet: node {node_label(node)} is a {operator_label(node)}, which is not opened: {why}"
    # Only the bare softmaxes hand their weights out; behind an attention they are gone.
    weights = node.outputs[0] if node.op_type.endswith("Softmax") else None
    return Match(operator_label(node), None, weights, None, Verdict("refuse", reason))


FORM = Form("attention-operator", "Operators with a softmax inside that are not opened", match, verdict="refuse")
