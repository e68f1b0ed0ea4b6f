"""Softmaxes whose scores compare no queries with keys: feature maps of linear attention, and weights of an answer."""

from __future__ import annotations

import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import MOVES_ONLY, SAME_VALUES, chain_above, is_constant, is_op, operand, producer, top_above
from softq.graph.view import Use

_LAYERS = ("MatMul", "Gemm", "Conv", "Einsum")
_SCALED = (*SAME_VALUES, *MOVES_ONLY - {"Concat"}, "Mul", "Div")
_STEPS = 16


def is_feature_map(scores: ir.Value, use: Use, facts: Facts) -> bool:
    """Return whether a product of weights is one of linear attention, so that these are features and no weights.

    The scores come from no product of queries and keys. The weights are multiplied with features of the other side, or
    with a product of two run-time values (keys' features and values); or their product with the values is multiplied
    with features.
    """
    node = use.node
    layer = find_layer(scores)
    if not is_op(node, "MatMul", "Einsum") or node is None or use.index > 1 or is_product(layer):
        return False
    partner = operand(node, 1 - use.index)
    product, below = find_scaled(partner), _follow(node, facts)[0]
    if is_product(product) and (layer is not None or _is_turned(product)):
        return True
    # If the scores come from no layer, weights times weights are features only if one side is transposed.
    if layer is None and not _is_turned(node):
        return False
    return _are_features(partner) or any(
        is_op(r, "MatMul", "Einsum") and _are_features(operand(r, 1 - index)) for r, index in below if index < 2
    )


def _is_turned(product: ir.Node | None) -> bool:
    turned = () if product is None else (v for x in product.inputs for v in chain_above(x, *_SCALED))
    return is_op(product, "Einsum") or any(producer(v, "Transpose") is not None for v in turned)


def is_answer(scores: ir.Value, length: int | str | None, use: Use, facts: Facts) -> bool:
    """Return whether a layer alone makes the row, and the weighted sum leaves the model as it is: RAFT's upsampling."""
    layer = find_layer(scores)
    if layer is None or use.node is None or not is_constant(operand(layer, 1)):
        return False  # a constant on the left is a learned query
    shape = facts.shape(layer.outputs[0])
    width = next(iter((shape or ())[1:2] if is_op(layer, "Conv") else (shape or ())[-1:]), None)
    channels = isinstance(length, int) and length > 1 and isinstance(width, int) and width % length == 0
    return channels and _follow(use.node, facts)[1]


def find_layer(scores: ir.Value | None) -> ir.Node | None:
    """Return the product that scores come from: above each operator in between, its first run-time operand."""
    for _ in range(_STEPS):
        node = None if scores is None else scores.producer()
        if node is None or is_op(node, *_LAYERS):
            return node
        scores = next((v for v in node.inputs if v is not None and not is_constant(v)), None)
    return None


def is_product(node: ir.Node | None) -> bool:
    """Return whether a node multiplies two run-time values, as queries and keys."""
    return is_op(node, "MatMul", "Einsum") and node is not None and not any(map(is_constant, node.inputs))


def find_scaled(value: ir.Value | None) -> ir.Node | None:
    """Return the node that makes a value, before it is moved and scaled."""
    top = top_above(value, *_SCALED)
    return top and top.producer()


def _are_features(value: ir.Value | None) -> bool:
    softmax = producer(top_above(value, *_SCALED, "Concat"), "Softmax")
    return softmax is not None and not is_product(find_layer(operand(softmax, 0)))


def _follow(node: ir.Node, facts: Facts) -> tuple[list[tuple[ir.Node, int]], bool]:
    """Return the readers of a result that is moved, summed or scaled, and whether it becomes a graph output."""
    waiting, readers, leaves = [node.outputs[0]], list[tuple[ir.Node, int]](), False
    for value in waiting:
        for use in facts.view.uses(value):
            leaves = leaves or use.node is None
            if use.node is not None:
                readers.append((use.node, use.index))
                scales = is_op(use.node, "Mul", "Div", "Add") and is_constant(operand(use.node, 1 - use.index))
                moves = is_op(use.node, *MOVES_ONLY, *SAME_VALUES, "ReduceSum", "DepthToSpace")
                waiting += use.node.outputs[:1] if (moves or scales) and len(waiting) < _STEPS else []
    return readers, leaves
