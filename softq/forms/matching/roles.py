"""What the result of a softmax is used for, which decides whether it is converted without being asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import onnx_ir as ir

from softq.forms.matching.choices import find_choice
from softq.forms.matching.features import is_answer, is_feature_map
from softq.forms.matching.weighing import is_pooling, still_weights, weighs_places
from softq.graph.facts import Facts
from softq.graph.queries import (
    MOVES_ONLY,
    SAME_VALUES,
    chain_above,
    full_label,
    is_constant,
    is_op,
    is_passthrough,
    operand,
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
    "Conv": "detector",
    "NonMaxSuppression": "detector",
    "GridSample": "detector",
    "DeformConv": "detector",
    "ArgMax": "classifier",
    "ZipMap": "classifier",
}
_ORDER: tuple[Role, ...] = ("attention", "router", "sampler", "detector", "classifier", "other")
"""The first of several uses decides; `selector` and `feature-map` are told from attention."""

_MOST_USES = 256
"""Readers that are looked at to learn what weights are for: the result of a softmax has some ten."""


@dataclass(frozen=True)
class Usage:
    """A role and the operator that shows it; `logs` take the logarithm of the result; reasons have `why`, `note`."""

    role: Role
    consumer: str
    logs: tuple[ir.Node, ...] = ()
    why: str = ""
    note: str = ""


def find_usage(weights: ir.Value, scores: ir.Value | None, axis: int | None, facts: Facts) -> Usage:
    """Return the usage of the `weights` of `scores`: of their uses, at most `_MOST_USES`, the first by `_ORDER`."""
    uses: list[tuple[int, Use]] = []
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
                flips = transposed != _moves_row(use.node, facts)
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
                uses.append((_ORDER.index(role), use))
            if use.node is not None and role != "attention" and still_weights(use, axis, weights, facts):
                stack.append((use.node.outputs[0], transposed, operator_label(use.node)))
    if not uses:
        return Usage("other", "nothing", why="nothing reads its result")
    order, use = min(uses, key=lambda entry: entry[0])
    consumer = "graph output" if use.node is None else operator_label(use.node)
    usage = Usage(_ORDER[order], consumer, tuple(logs), _explain(use, facts))
    return usage if usage.role != "attention" else _refine(usage, use, weights, scores, axis, facts)


def _refine(
    usage: Usage, use: Use, weights: ir.Value, scores: ir.Value | None, axis: int | None, facts: Facts
) -> Usage:
    """Return the usage of weights of an attention, as a feature map, a detector or a selector if they are that."""
    shape, label = facts.shape(weights), "" if use.node is None else full_label(use.node)
    if scores is not None and is_feature_map(scores, use, facts):
        why = f"{label} sums over the axis of the softmax, and that axis is not one of keys"
        return replace(usage, role="feature-map", why=why)
    length = None if shape is None or axis is None else shape[axis]
    if scores is not None and is_answer(scores, length, use, facts):
        why = f"its scores come from one layer, not from queries and keys, and the sum by {label} leaves the model"
        return replace(usage, role="detector", why=why)
    return tell_choices(usage, label, weights, axis, facts)


def tell_choices(usage: Usage, product: str, weights: ir.Value, axis: int | None, facts: Facts) -> Usage:
    """Return the usage of weights that `product` reads, as a selector if `find_choice` finds an operator."""
    chooser, output = find_choice(weights, axis, facts)
    if chooser is not None:
        why = f"{product} multiplies its weights by values, and {full_label(chooser)} chooses by the same weights"
        return replace(usage, role="selector", consumer=operator_label(chooser), why=why)
    return replace(usage, note=output and f"the graph output {output!r} shows its weights or what is made of them")


def _explain(use: Use, facts: Facts) -> str:
    """Return a sentence on a use that is no product with values of run time."""
    if use.node is None:
        return f"it is the graph output {facts.view.model.graph.outputs[use.index].name!r}"
    other = operand(use.node, 1 - use.index) if use.index < 2 else None
    reader = full_label(use.node)
    if is_op(use.node, "MatMul", "Gemm", "Einsum", "Conv", "Mul") and is_constant(other) and other is not None:
        return f"{reader} multiplies it by the constant {other.name!r}, and an attention by values computed from inputs"
    if is_op(use.node, "MatMul"):
        return f"{reader} does not sum over the axis of the softmax"
    if is_op(use.node, "Mul"):
        return f"{reader} multiplies it element by element, with no sum over its row"
    return f"{reader} reads it"


def _moves_row(node: ir.Node, facts: Facts) -> bool:
    """Return whether the last axis becomes the second to last, or the reverse, also by an axis of length 1 after it."""
    shapes = [facts.shape(value) for value in (node.inputs[0], node.outputs[0])]
    columns = [shape and shape[-1] == 1 for shape in shapes]
    return is_op(node, "Transpose") or (
        is_op(node, "Unsqueeze", "Squeeze", "Reshape") and None not in shapes and columns[0] != columns[1]
    )


def is_chosen(scores: ir.Value) -> bool:
    """Whether scores are the greatest of others, as in a router that weighs the experts it has chosen."""
    *_, value = chain_above(scores, "Cast", "Identity", "Reshape", "Transpose")
    node = producer(value, "TopK")
    return node is not None and value is node.outputs[0]


def _goes_on(use: Use, facts: Facts) -> bool:
    node = use.node
    if node is None or not is_op(node, *_THROUGH):
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
    if weighs_places(use):
        return "detector"
    if is_op(node, "MatMul", "Gemm", "Einsum"):
        others = [v for i, v in enumerate(node.inputs[:2]) if v is not None and i != use.index]
        if any(is_constant(other) for other in others):
            return "other"
        # As the right operand the weights are summed along their last axis only if they come transposed.
        column = len(facts.shape(node.inputs[use.index]) or (0, 0)) == 1
        sums_row = node.op_type != "MatMul" or use.index == 0 or transposed or column or axis not in {None, -1}
        return "attention" if sums_row else "other"
    if is_op(node, "Conv") and is_constant(operand(node, 1)):
        return "other"
    if is_op(node, "Mul") and is_pooling(use, axis, facts):
        return "attention"
    return _BY_OPERATOR.get(node.op_type, "other") if node.domain in {"", "ai.onnx.ml"} else "other"
