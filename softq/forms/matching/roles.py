"""What the result of a softmax is used for, which decides whether it is converted without being asked for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import onnx_ir as ir

from softq.forms.matching.weighing import is_expectation, is_pooling, still_weights
from softq.graph.facts import Facts
from softq.graph.queries import (
    MOVES_ONLY,
    SAME_VALUES,
    chain_above,
    is_constant,
    is_op,
    is_passthrough,
    operator_label,
    producer,
)
from softq.graph.view import Use
from softq.site import Role

_THROUGH = MOVES_ONLY | SAME_VALUES | {"QuantizeLinear", "DequantizeLinear", "Where"}
_BY_OPERATOR: dict[str, Role] = {
    "TopK": "router",
    "Multinomial": "sampler",
    "CumSum": "sampler",
    "Conv": "detector",  # The expectation of a place; of others, see `is_expectation`.
    "NonMaxSuppression": "detector",
    "GridSample": "detector",
    "DeformConv": "detector",
    "ArgMax": "classifier",
    "ZipMap": "classifier",
}
_ORDER: tuple[Role, ...] = ("attention", "router", "sampler", "detector", "classifier", "other")


_MOST_USES = 256
"""Readers that are looked at to learn what weights are for: the result of a softmax has some ten."""


@dataclass(frozen=True)
class Usage:
    """A role and the operator that shows it; `logs` are the nodes that take the logarithm of the result."""

    role: Role
    consumer: str
    logs: tuple[ir.Node, ...] = ()


def find_usage(weights: ir.Value, axis: int | None, facts: Facts) -> Usage:
    """Return what `weights` are used for; of several uses the first in the order of `Role`, of `_MOST_USES` at most."""
    found: list[tuple[int, str]] = []
    logs: list[ir.Node] = []
    seen: set[tuple[ir.Value, bool, str]] = set()
    stack, left = [(weights, False, "")], _MOST_USES
    while stack:
        value, transposed, changed = stack.pop()
        if (value, transposed, changed) in seen:
            continue
        seen.add((value, transposed, changed))
        for use in islice(facts.view.uses(value), max(0, left)):
            left -= 1
            if use.node is not None and _goes_on(use, facts):
                flips = transposed != is_op(use.node, "Transpose")
                # The second output of Dropout is its mask.
                handed_on = use.node.outputs if use.node.op_type == "Split" else use.node.outputs[:1]
                stack.extend((output, flips, changed) for output in handed_on)
                continue
            if is_op(use.node, "CastLike") and use.index == 1:
                continue  # only the type is read
            if use.node is not None and is_op(use.node, "Log") and not changed:
                logs.append(use.node)
            role = _find_role(use, axis, transposed, facts)
            if not changed or role == "attention":
                # What becomes of other numbers than the weights says nothing but that they weigh values.
                found.append((_ORDER.index(role), "graph output" if use.node is None else operator_label(use.node)))
            if use.node is not None and role != "attention" and still_weights(use, axis, weights, facts):
                stack.append((use.node.outputs[0], transposed, operator_label(use.node)))
    if not found:
        return Usage("other", "nothing")
    order, consumer = min(found, key=lambda pair: pair[0])
    return Usage(_ORDER[order], consumer, tuple(logs))


def is_chosen(scores: ir.Value) -> bool:
    """Whether scores are the greatest of others, as in a router that weighs the experts it has chosen."""
    *_, value = chain_above(scores, "Cast", "Identity", "Reshape", "Transpose")
    node = producer(value, "TopK")
    return node is not None and value is node.outputs[0]


def _goes_on(use: Use, facts: Facts) -> bool:
    node = use.node
    if node is None or node.domain or node.op_type not in _THROUGH:
        return False
    if node.op_type == "Dropout":
        return use.index == 0 and is_passthrough(node, facts.view.container_of(node).opset)
    if node.op_type == "Where":
        return use.index > 0
    return node.op_type == "Concat" or use.index == 0


def _find_role(use: Use, axis: int | None, transposed: bool, facts: Facts) -> Role:
    node = use.node
    if node is None:
        return "classifier"
    if is_op(node, "MatMul", "Gemm", "Einsum"):
        others = [v for i, v in enumerate(node.inputs[:2]) if v is not None and i != use.index]
        if any(is_constant(other) for other in others):
            return "other"
        # As the right operand the weights are summed along their last axis only if they come transposed.
        sums_row = node.op_type != "MatMul" or use.index == 0 or transposed or axis not in {None, -1}
        return "attention" if sums_row else "other"
    if is_op(node, "Conv") and not is_expectation(use):
        return "other"
    if is_op(node, "Mul") and is_pooling(use, axis, facts):
        return "attention"
    return _BY_OPERATOR.get(node.op_type, "other") if node.domain in {"", "ai.onnx.ml"} else "other"
