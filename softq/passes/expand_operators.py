"""Open operators that ONNX itself defines by a function, for consumers that lack them.

Where the bodies come from: `softq/graph/bodies.py`.
"""

from __future__ import annotations

from collections.abc import Set

import onnx
import onnx_ir as ir

from softq.graph.bodies import find_standard_body, to_type_proto
from softq.passes import BodyPass, PassEntry

OPENED = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "Celu",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "NegativeLogLikelihoodLoss",
        "RMSNormalization",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)
"""Operators with a deterministic body that TVM's importer lacks, or takes for another operator of the same name."""


class ExpandOperators(BodyPass):
    """Opens the named operators of the default domain; those whose input types or ranks are not known stay.

    Args:
        operators: Names of operators that have a function body in `onnx.defs`.
    """

    def __init__(self, operators: Set[str] = OPENED) -> None:
        super().__init__()
        self.operators = operators

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Open them; bodies may hold operators that are opened in turn."""
        modified = False
        while super().call(model).modified:
            modified = True
        return ir.passes.PassResult(model, modified)

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        if node.domain != "" or node.op_type not in self.operators:
            return None
        types: list[onnx.TypeProto] = []
        for value in node.inputs:
            if value is None:
                types.append(onnx.TypeProto())
            elif value.dtype is None or value.shape is None:
                return None
            else:
                types.append(to_type_proto(value.dtype, value.shape))
        return find_standard_body(node, opset, types)


PASS = PassEntry(
    "expand-operators",
    ExpandOperators,
    "Open operators that ONNX defines by other operators",
    frozenset(("", name) for name in OPENED),
)
