"""Where attention weights stand: behind the product of queries and keys, before the product with the values."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.substitutes.regions import MOST_NODES
from softq.graph.queries import is_constant, is_op, operand, producer

_STEPS = 6
"""Nodes between the product of queries and keys and the function: a scale, a bias, a mask, casts."""


def are_scores(value: ir.Value | None) -> bool:
    """Return whether a value is a product of two run-time values, scaled, masked or cast since.

    An activation of a network of layers has a constant matrix on one side, and linear attention its function on
    queries and keys. What is done with something that is itself computed from the scores is part of a function of them.
    """
    for _ in range(_STEPS):
        node = producer(value, "MatMul", "Einsum", "Mul", "Div", "Add", "Sub", "Where", "Cast", "Identity")
        if node is None:
            return False
        if node.op_type in {"MatMul", "Einsum"}:
            return len(node.inputs) == 2 and not any(is_constant(operand(node, i)) for i in (0, 1))
        # Scores are the first operand of what is done to them, or the last that a Where chooses.
        place = 2 if node.op_type == "Where" and is_constant(operand(node, 1)) else _first(node)
        value = operand(node, place)
        others = [operand(node, i) for i in range(len(node.inputs)) if i != place]
        if value is None or any(is_computed_from(other, value) for other in others):
            return False
    return False


def _first(node: ir.Node) -> int:
    if node.op_type == "Where":
        return 1
    return int(len(node.inputs) > 1 and is_constant(operand(node, 0)))


def is_computed_from(value: ir.Value | None, scores: ir.Value) -> bool:
    """Return whether the elements of a value depend on the scores, as far as one function reaches."""
    stack, seen = [value], set[ir.Value]()
    while stack and len(seen) < MOST_NODES:
        current = stack.pop()
        if current is scores:
            return True
        node = None if current is None or current in seen else current.producer()
        if current is not None:
            seen.add(current)
        if node is not None and not is_op(node, "Shape"):
            stack += node.inputs
    return False


def are_weights(value: ir.Value) -> bool:
    """Return whether a value is the left operand of a product with a run-time value, and of nothing else."""
    readers = value.consumers()
    if value.is_graph_output() or len(readers) != 1:
        return False
    (reader,) = readers
    sums = is_op(reader, "MatMul") or (is_op(reader, "Einsum") and _sums_rows(reader))
    return sums and operand(reader, 0) is value and not is_constant(operand(reader, 1))


def _sums_rows(einsum: ir.Node) -> bool:
    """Return whether an Einsum of two operands sums over the last axis of the first, and over nothing else of it."""
    attribute = einsum.attributes.get("equation")
    if attribute is None or attribute.is_ref() or len(einsum.inputs) != 2:
        return False
    terms, _, out = attribute.as_string().replace(" ", "").partition("->")
    first, _, second = terms.partition(",")
    if not first[-1:].isalpha() or not out or len(set(first)) != len(first):
        return False
    return first[-1] in second and first[-1] not in out and all(label in out for label in first[:-1])
