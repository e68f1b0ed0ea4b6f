"""A softmax written out: an exponential divided by its sum, or the exponential of x - logsumexp(x)."""

from __future__ import annotations

import onnx_ir as ir

from softq.passes._forms import Form, Match
from softq.passes._forms._facts import Facts
from softq.passes._graph import constant, is_constant, is_op, node_label, operand, producer
from softq.site import Verdict

_BETWEEN = ("Identity", "Cast", "Expand", "Squeeze", "Unsqueeze", "Reshape")


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the last node of a written-out softmax or log-softmax."""
    if is_op(node, "Div"):
        found = _quotient(operand(node, 0), operand(node, 1))
        return None if found is None else _refused(node, "Exp/ReduceSum/Div", *found, facts)
    if is_op(node, "Mul"):
        for first, second in ((0, 1), (1, 0)):
            inverse = producer(_behind(operand(node, second)), "Reciprocal")
            found = None if inverse is None else _quotient(operand(node, first), operand(inverse, 0))
            if found is not None:
                return _refused(node, "Exp/ReduceSum/Reciprocal/Mul", *found, facts)
    if is_op(node, "Exp"):
        difference = producer(_behind(operand(node, 0)), "Sub")
        found = None if difference is None else _log_quotient(difference)
        return None if found is None else _refused(node, "ReduceLogSumExp/Sub/Exp", *found, facts)
    if is_op(node, "Sub") and not any(is_op(reader, "Exp") for reader in node.outputs[0].consumers()):
        found = _log_quotient(node)
        return None if found is None else _refused(node, "ReduceLogSumExp/Sub", *found, facts)
    return None


def _quotient(above: ir.Value | None, below: ir.Value | None) -> tuple[ir.Value, ir.Node] | None:
    """Scores and sum of an exponential over its own sum; the sum may have a constant or a sink added."""
    above, below = _behind(above), _behind(below)
    total = producer(below, "ReduceSum", "ReduceL1")
    if total is None and (added := producer(below, "Add", "Max", "Clip")) is not None:
        sides = [producer(_behind(v), "ReduceSum", "ReduceL1") for v in added.inputs]
        total = next((side for side in sides if side is not None), None)
    if above is None or total is None or _behind(operand(total, 0)) is not above:
        return None
    exponent = _exponent(above)
    return None if exponent is None else (_before_maximum(exponent), total)


def _exponent(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    if is_op(node, "Mul", "Where"):
        # A mask on the exponentials.
        assert node is not None
        node = next((e for v in node.inputs if (e := producer(_behind(v), "Exp", "Pow")) is not None), None)
    if node is not None and is_op(node, "Exp"):
        return operand(node, 0)
    if node is not None and is_op(node, "Pow") and is_constant(operand(node, 0)):
        return operand(node, 1)
    return None


def _log_quotient(difference: ir.Node) -> tuple[ir.Value, ir.Node] | None:
    """Scores and reduction of x - log(sum(exp(x)))."""
    scores = _behind(operand(difference, 0))
    reduction = producer(_behind(operand(difference, 1)), "ReduceLogSumExp", "Log")
    if scores is None or reduction is None:
        return None
    if reduction.op_type == "ReduceLogSumExp":
        return (scores, reduction) if _behind(operand(reduction, 0)) is scores else None
    total = producer(_behind(operand(reduction, 0)), "ReduceSum", "ReduceL1")
    inner = None if total is None else producer(_behind(operand(total, 0)), "Exp")
    if total is None or inner is None or _behind(operand(inner, 0)) is not scores:
        return None
    return _before_maximum(scores), total


def _before_maximum(value: ir.Value) -> ir.Value:
    difference = producer(_behind(value), "Sub")
    if difference is None:
        return value
    scores = operand(difference, 0)
    maximum = producer(_behind(operand(difference, 1)), "ReduceMax")
    same = maximum is not None and scores is not None and _behind(operand(maximum, 0)) is _behind(scores)
    return scores if same and scores is not None else value


def _behind(value: ir.Value | None) -> ir.Value | None:
    while (node := producer(value, *_BETWEEN)) is not None:
        value = operand(node, 0)
    return value


def _refused(node: ir.Node, operator: str, scores: ir.Value, reduction: ir.Node, facts: Facts) -> Match:
    reason = f"not yet: the softmax that ends in node {node_label(node)} is written out as {operator}"
    return Match(operator, scores, node.outputs[0], _axis(reduction, facts), Verdict("refuse", reason))


def _axis(reduction: ir.Node, facts: Facts) -> int | None:
    attribute = reduction.attributes.get("axes")
    if attribute is not None:
        axes = None if attribute.is_ref() else list(attribute.as_ints())
    else:
        tensor = constant(operand(reduction, 1))
        axes = None if tensor is None else [int(a) for a in tensor.reshape(-1)]
    if axes is None or len(axes) != 1:
        return None
    shape = facts.shape(operand(reduction, 0))
    return axes[0] if axes[0] < 0 else None if shape is None else axes[0] - len(shape)


FORM = Form(name="decomposed", summary="Exp/ReduceSum/Div and its kin (not converted yet)", match=match)
