"""Compute the weights of recurrent layers, which the layers' kernels take as constants."""

from __future__ import annotations

import sys

import onnx_ir as ir

from softq.graph.view import Container
from softq.passes import NodePass, PassEntry
from softq.passes.fold_constants import fold

_LAYERS = frozenset({"GRU", "LSTM", "RNN"})


class FoldRecurrentWeights(NodePass):
    """Replaces weights and biases of recurrent layers that depend on constants alone, of any size.

    Quantized weights become floats, four times as large: dequantized in every run they take longer than the layer.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        if node.op_type not in _LAYERS:
            return False
        folded = [_fold(value, container) for value in node.inputs[1:4] if value is not None]
        return any(folded)


def _fold(value: ir.Value, container: Container) -> bool:
    """Put constants in the place of what a value is computed from, as far as these are all that it depends on."""
    node, modified = value.producer(), False
    if node is None or node.domain != "" or node.op_type == "Constant":
        return False
    for given in node.inputs:
        modified |= given is not None and _fold(given, container)
    return fold(node, container, sys.maxsize) or modified


PASS = PassEntry("fold-recurrent-weights", FoldRecurrentWeights, "Compute the constant weights of recurrent layers")
