"""Compute what depends on constants alone, where the result is small."""

from __future__ import annotations

import math

import onnx_ir as ir

from softq.graph.constants import become_constants, evaluate, is_pure
from softq.graph.queries import constant
from softq.graph.reference import Budget
from softq.graph.view import Container
from softq.limits import current
from softq.passes import NodePass, PassEntry

LIMIT = 1 << 20
"""Bytes of the largest result that is stored in the model: a causal mask of 512 x 512 floats."""

_KEPT = frozenset({"Constant", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})
"""Quantized weights stay integers."""


_FILLED = 1 << 28
"""Bytes of the largest weight that is one number again and again."""

_WEIGHTS = frozenset({("Conv", 1), ("ConvTranspose", 1), ("Gemm", 1), ("MatMul", 1)})
"""Operators and which of their inputs are weights: they are brought into another form when a model is built."""


class FoldConstants(NodePass):
    """Replaces pure standard operators on constants by their results, as onnx's reference computes them.

    Inputs and result have at most `limit` bytes each, but for weights that are one number again and again; a result
    whose shape is not known beforehand is not computed.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__()
        self.limit = limit
        self._budget = Budget()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold until results would take as much memory as `softq.limits` allows; other nodes stay."""
        self._budget = Budget(current().memory // 8)
        return super().call(model)

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        if node.op_type in _KEPT:
            return False
        return fold(node, container, _FILLED) if _is_weight(node) else fold(node, container, self.limit, self._budget)


def fold(node: ir.Node, container: Container, limit: int, budget: Budget | None = None) -> bool:
    """Put the results of a node in its place if it is a pure one on constants; return whether it was.

    Args:
        node: A node of the default domain.
        container: Where it stands.
        limit: Bytes that each input and each result may have.
        budget: The budget that pays for its elements, if nodes share one.
    """
    if not is_pure(node) or not node.inputs or not all(_is_small(value, limit) for value in node.outputs):
        return False
    arrays = [constant(value, limit) for value in node.inputs]
    if any(value is not None and array is None for value, array in zip(node.inputs, arrays, strict=True)):
        return False
    results = evaluate(node, container.opset, arrays, budget, limit * (len(arrays) + len(node.outputs)))
    # A result of another type or shape than the model has it: one of the two is wrong, so both stay.
    pairs = zip(node.outputs, results or (), strict=False)
    if results is None or any(value.shape != ir.Shape(array.shape) for value, array in pairs):
        return False
    return become_constants(node, results, container)


def _is_weight(node: ir.Node) -> bool:
    uses = node.outputs[0].uses() if node.op_type == "ConstantOfShape" else ()
    return len(uses) > 0 and all((user.op_type, position) in _WEIGHTS for user, position in uses)


def _is_small(value: ir.Value, limit: int) -> bool:
    if not value.name or value.shape is None or value.dtype is None or value.dtype == ir.DataType.STRING:
        return False
    sizes = [dim for dim in value.shape if isinstance(dim, int)]
    return len(sizes) == len(value.shape) and math.ceil(math.prod(sizes) * value.dtype.itemsize) <= limit


PASS = PassEntry("fold-constants", FoldConstants, "Compute small results that depend on constants alone")
