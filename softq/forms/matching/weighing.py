"""Weights on their way to the values: what may be done to them, and products with values that are written out."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import MOVES_ONLY, SAME_VALUES, chain_above, constant, is_constant, is_op, operand, producer
from softq.graph.view import Use


def still_weights(use: Use, axis: int | None, weights: ir.Value, facts: Facts) -> bool:
    """Say whether a node makes other weights of the weights it reads: less others, masked, mixed over heads, scaled.

    Args:
        use: The node, and which of its operands are weights.
        axis: The axis along which the softmax was taken, counted from the end.
        weights: Its result.
        facts: Shapes of the model.
    """
    node = use.node
    other = None if node is None else operand(node, 1 - use.index) if use.index < 2 else None
    if node is None or node.domain or len(node.inputs) != 2 or other is None:
        return False
    mine, after = facts.shape(node.inputs[use.index]), facts.shape(node.outputs[0])
    if mine is None or mine != after or None in mine:
        return False
    if is_op(node, "Add", "Sub"):
        # Of a softmax, as in differential attention; a small number, as in slot attention.
        return is_constant(other) or is_of_softmax(other)
    if is_op(node, "Mul"):
        theirs = facts.shape(other)
        own = _comes_from(other, weights)
        return not own and theirs is not None and (len(theirs) < len(mine) or 1 in theirs or is_constant(other))
    if is_op(node, "Div"):
        total = producer(other, "ReduceSum")
        return use.index == 0 and (is_constant(other) or (total is not None and operand(total, 0) is node.inputs[0]))
    return is_op(node, "MatMul", "Einsum", "Conv") and use.index == 0 and _mixes_heads(other, axis, weights, facts)


def is_of_softmax(value: ir.Value) -> bool:
    """Say whether a value is a softmax, or a multiple of one."""
    for _ in range(4):
        *_, value = chain_above(value, *SAME_VALUES, *MOVES_ONLY - {"Concat"})
        node = value.producer()
        if not is_op(node, "Mul"):
            return is_op(node, "Softmax")
        assert node is not None, "it is a Mul"
        softmaxes = [v for v in node.inputs if v is not None and producer(v, "Softmax") is not None]
        value = softmaxes[0] if softmaxes else node.inputs[0] or value
    return False


def _comes_from(value: ir.Value, weights: ir.Value) -> bool:
    """Say whether a value is made of weights alone, as their logarithm is."""
    *_, source = chain_above(value, *SAME_VALUES, *MOVES_ONLY - {"Concat"}, "Log", "Exp", "Sqrt", "Neg", "Add", "Sub")
    return source is weights


def _mixes_heads(matrix: ir.Value, axis: int | None, weights: ir.Value, facts: Facts) -> bool:
    """Say whether a product with a constant makes mixtures of the heads' weights, as talking heads do."""
    known, shape = constant(matrix), facts.shape(weights)
    if known is None or shape is None or len(shape) != 4 or axis != -1:
        return False
    heads = shape[1]
    return isinstance(heads, int) and known.shape[:2] == (heads, heads) and known.size == heads * heads


def is_pooling(use: Use, axis: int | None, facts: Facts) -> bool:
    """Say whether a product is one with values that are wider than the weights, summed along the row: pooling."""
    node = use.node
    other = None if node is None else operand(node, 1 - use.index)
    if node is None or other is None or is_constant(other) or axis is None:
        return False
    mine, after = facts.shape(node.inputs[use.index]), facts.shape(node.outputs[0])
    if mine is None or after is None or len(mine) != len(after):
        return False
    wider = [place for place, (a, b) in enumerate(zip(mine, after, strict=True)) if a == 1 and b != 1]
    readers = node.outputs[0].consumers()
    total = readers[0] if len(readers) == 1 and is_op(readers[0], "ReduceSum") else None
    axes = None if total is None else facts.view.attribute(total, "axes")
    given = axes.as_ints() if axes is not None else constant(None if total is None else operand(total, 1))
    if total is None or given is None or not wider:
        return False
    return [int(place) % len(mine) for place in np.ravel(given)] == [axis % len(mine)]


def weighs_places(use: Use) -> bool:
    """Say whether weights meet constants at equal distances, places: soft-argmax, and the heads of detectors."""
    other = None if use.node is None or use.index > 1 else constant(operand(use.node, 1 - use.index), 1 << 20)
    if other is None or not is_op(use.node, "MatMul", "Gemm", "Einsum", "Conv", "Mul"):
        return False
    if is_op(use.node, "Conv") and other.size != other.shape[1]:
        return False
    ways = [list(other), list(other.T)] if other.ndim == 2 else [[other]]
    steps = [[np.diff(np.unique(np.round(part.astype(np.float64), 6))) for part in way] for way in ways]
    return any(all(s.size > 1 and np.allclose(s, s[0], rtol=1e-3, atol=2e-6) for s in way) for way in steps)
