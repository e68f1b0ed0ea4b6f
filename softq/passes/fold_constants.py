"""Compute what depends on constants alone, where the result is small."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from softq.graph.constants import Array, become_constant, evaluate, is_pure
from softq.graph.edits import remove_if_unused
from softq.graph.queries import Container, ModelView, constant
from softq.passes import PassEntry

LIMIT = 1 << 20
"""Bytes of the largest result that is stored in the model: a causal mask of 512 x 512 floats."""

_KEPT = frozenset({"Constant", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})
"""Quantized weights stay integers."""


class FoldConstants(ir.passes.InPlacePass):
    """Replaces pure standard operators on constants by their results, as onnx's reference computes them.

    Inputs and result have at most `limit` bytes each; a result whose shape is not known beforehand is not computed.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """See the class."""
        super().__init__()
        self.limit = limit

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Compute them; `modified` says whether there were any."""
        modified = False
        for container in ModelView(model).containers:
            for node in list(container.body):
                if node.graph is None or not is_pure(node) or node.op_type in _KEPT:
                    continue
                modified |= self._fold(node, container)
        return ir.passes.PassResult(model, modified)

    def _fold(self, node: ir.Node, container: Container) -> bool:
        if not node.inputs or not all(self._is_small(value) for value in node.outputs):
            return False
        arrays: list[Array | None] = []
        for value in node.inputs:
            array = None if value is None else constant(value, self.limit)
            if value is not None and array is None:
                return False
            arrays.append(array)
        results = evaluate(node, container.opset, arrays)
        if results is None:
            return False
        tensors = [ir.tensor(np.ascontiguousarray(array).reshape(array.shape)) for array in results]
        if any(_differs(value, tensor) for value, tensor in zip(node.outputs, tensors, strict=True)):
            return False
        for value, tensor in zip(node.outputs, tensors, strict=True):
            become_constant(value, tensor, container)
        remove_if_unused(node)
        return True

    def _is_small(self, value: ir.Value) -> bool:
        if not value.name or value.shape is None or value.dtype is None or value.dtype == ir.DataType.STRING:
            return False
        sizes = [dim for dim in value.shape if isinstance(dim, int)]
        return len(sizes) == len(value.shape) and math.ceil(math.prod(sizes) * value.dtype.itemsize) <= self.limit


def _differs(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    """Say whether a result is of another type or shape than the model has it: one of the two is wrong, so both stay."""
    return value.dtype != tensor.dtype or value.shape != ir.Shape(tensor.shape.numpy())


PASS = PassEntry("fold-constants", FoldConstants, "compute small results that depend on constants alone")
