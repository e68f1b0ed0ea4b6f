"""Multiply what batch normalizations do to the results of convolutions into constant kernels and biases.

With k = scale / sqrt(variance + epsilon), k (W * x + b - mean) + B is (k W) * x + (k (b - mean) + B).

Source: S. Ioffe, C. Szegedy, "Batch Normalization", 2015 (arXiv:1502.03167), section 3.1.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.graph.edits import put_in_place, remove_if_unused
from softq.graph.queries import constant, has_references, is_op
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry

_LIMIT = 1 << 28
"""Bytes of the largest kernels that are multiplied."""

_TYPES = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


class FoldNormalizations(NodePass):
    """Replaces a Conv and the BatchNormalization that alone reads it by a Conv, where all but the image is constant.

    The factors are computed in float64, and kernels and biases rounded once.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        source = node.inputs[0] if node.op_type == "BatchNormalization" and container.function is None else None
        conv = None if source is None else source.producer()
        if source is None or conv is None or not is_op(conv, "Conv") or conv.graph is not node.graph:
            return False
        if len(node.outputs) != 1 or source.is_graph_output() or len(source.uses()) != 1:
            return False
        if has_references(node) or has_references(conv) or node.attributes.get_int("training_mode", 0):
            return False
        x, *given = conv.inputs
        arrays = [
            None if v is None or v.dtype not in _TYPES else constant(v, _LIMIT) for v in (*given, *node.inputs[1:])
        ]
        if any(array is None for array in arrays):
            return False
        weights, *parameters = (array for array in arrays if array is not None)
        scale, shift, mean, variance = (p.astype(np.float64) for p in parameters[-4:])
        bias = parameters[0].astype(np.float64) if len(parameters) > 4 else 0.0
        factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        folded = weights * factor.reshape(-1, *[1] * (weights.ndim - 1)), factor * (bias - mean) + shift
        values = [
            self._add(container, f"{node.outputs[0].name}.{i}", a.astype(weights.dtype)) for i, a in enumerate(folded)
        ]
        new = ir.node("Conv", [x, *values], attributes=dict(conv.attributes))
        put_in_place(node, [new], new, node.outputs, new.outputs)
        remove_if_unused(conv)
        return True

    @staticmethod
    def _add(container: Container, name: str, array: NDArray[np.generic]) -> ir.Value:
        tensor = ir.tensor(array, name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
        container.graph.register_initializer(value)
        return value


PASS = PassEntry(
    "fold-normalizations", FoldNormalizations, "Multiply batch normalizations into the kernels of convolutions"
)
