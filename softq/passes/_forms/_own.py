"""Attention whose weights are no softmax: an elementwise function between two products of run-time values."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Match
from softq.passes._forms._exponentials import number
from softq.passes._forms._facts import Facts
from softq.passes._forms._operators import refusal_of
from softq.passes._graph import is_constant, is_op, operand, producer
from softq.site import Verdict

_STEPS = 6
"""Nodes between the product of queries and keys and the function: a scale, a bias, a mask, casts."""


def match_weights(node: ir.Node, operator: str, facts: Facts) -> Match | None:
    """Return the match of an elementwise node that makes attention weights of scores, None if it does not.

    The scores come from a product of two run-time values, and the weights go, divided or multiplied by one number at
    most, into a product at whose right stands a run-time value. Both have to be seen: an activation of a network of
    layers has a constant matrix on one side, and linear attention has its function on queries and keys.
    """
    if not is_op(node, operator):
        return None
    scores = operand(node, 0)
    if scores is None or not _is_of_queries_and_keys(scores) or not _goes_into_product(node.outputs[0]):
        return None
    refusal = refusal_of(node, scores, facts)
    return Match(operator, scores, node.outputs[0], -1, Verdict("refuse", refusal) if refusal else None)


def _is_of_queries_and_keys(value: ir.Value | None) -> bool:
    for _ in range(_STEPS):
        node = producer(value, "MatMul", "Mul", "Div", "Add", "Sub", "Where", "Cast", "Identity")
        if node is None:
            return False
        if node.op_type == "MatMul":
            return not is_constant(operand(node, 0)) and not is_constant(operand(node, 1))
        # Scores are the first operand of what is done to them, or the last that a Where chooses.
        value = operand(node, 2 if node.op_type == "Where" and is_constant(operand(node, 1)) else _first(node))
    return False


def _first(node: ir.Node) -> int:
    if node.op_type == "Where":
        return 1
    return int(len(node.inputs) > 1 and is_constant(operand(node, 0)))


def _goes_into_product(weights: ir.Value) -> bool:
    readers = weights.consumers()
    if weights.is_graph_output() or len(readers) != 1:
        return False
    (reader,) = readers
    if is_op(reader, "MatMul"):
        return operand(reader, 0) is weights and not is_constant(operand(reader, 1))
    scaled = is_op(reader, "Div", "Mul") and operand(reader, 0) is weights and number(operand(reader, 1)) is not None
    if not scaled or reader.outputs[0].is_graph_output():
        return False
    (last, *others) = reader.outputs[0].consumers() or [None]
    return (
        not others
        and last is not None
        and is_op(last, "MatMul")
        and (operand(last, 0) is reader.outputs[0] and not is_constant(operand(last, 1)))
    )
