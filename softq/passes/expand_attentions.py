"""Open onnxruntime's attentions into standard operators, as `convert` does with those that it converts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from softq.forms import microsoft_attention, microsoft_grouped_attention, microsoft_multi_head_attention
from softq.graph.bodies import open_nodes
from softq.graph.facts import Facts
from softq.graph.queries import has_references
from softq.graph.view import ModelView
from softq.passes import PassEntry
from softq.passes.expand_contrib import DOMAIN


class ExpandAttentions(ir.passes.InPlacePass):
    """Opens the operators of `BODIES`; one whose types, ranks or modes the text does not cover stays."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open them; `modified` says whether there were any."""
        view = ModelView(model)
        if not any(node.domain == DOMAIN and node.op_type in BODIES for node in view.nodes):
            return ir.passes.PassResult(model, modified=False)
        facts = Facts(view)

        def body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
            make = BODIES.get(node.op_type) if node.domain == DOMAIN else None
            return None if make is None or opset < 18 or has_references(node) else make(node, opset, facts)

        return ir.passes.PassResult(model, open_nodes(model, body))


def _attention(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    refused = microsoft_attention.refuse(node, facts)
    return None if refused else microsoft_attention.make_body(node, opset, facts)


def _multi_head(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    refused = microsoft_multi_head_attention.refuse(node, facts)
    return None if refused else microsoft_multi_head_attention.make_body(node, opset, facts)


def _grouped(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto | None:
    refused = microsoft_grouped_attention.refuse(node, facts)
    return None if refused else microsoft_grouped_attention.make_body(node, opset, facts)


BODIES: Mapping[str, Callable[[ir.Node, int, Facts], onnx.FunctionProto | None]] = {
    "Attention": _attention,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _multi_head,
}
"""What makes the body of each operator."""


PASS = PassEntry(
    "expand-attentions",
    ExpandAttentions,
    "Open onnxruntime's attentions into standard operators",
    frozenset((DOMAIN, name) for name in BODIES),
)
