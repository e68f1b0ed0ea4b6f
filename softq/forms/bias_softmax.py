"""onnxruntime's BiasSoftmax: the softmax of scores with a bias added.

Source: ContribOperators.md and the fusion that writes it (bias_softmax_fusion.cc), which takes an Add and a Softmax and
leaves the bias as it is: it is broadcast as the Add's operand was, whatever `is_inner_broadcast` tells the kernel.
There is no CPU kernel to compare with; the tests compare with the formula.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from softq.forms import Form, Inside, Match, refuse
from softq.forms.matching.opening import make_body_opener
from softq.forms.matching.operators import find_refusal, is_contrib
from softq.graph.bodies import parse_body
from softq.graph.facts import Facts
from softq.graph.queries import has_references, node_label, operand, operator_label


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a BiasSoftmax."""
    if not is_contrib(node, "BiasSoftmax", facts):
        return None
    scores, weights = operand(node, 0), node.outputs[0]
    shape, dtype = facts.shape(scores), facts.dtype(scores) or facts.dtype(weights)
    # What its bias is shows when it is opened: there it is an addend like any other.
    inside = Inside(dtype, shape, "unproven", "nan")
    return Match(operator_label(node), None, weights, -1, refuse(_refuse(node, facts)), inside=inside)


def _refuse(node: ir.Node, facts: Facts) -> str:
    name, (scores, bias) = f"node {node_label(node)} is a {operator_label(node)}", (operand(node, 0), operand(node, 1))
    if scores is None or bias is None:
        return f"{name} without scores or without a bias"
    if has_references(node):
        return f"not yet: {name} whose attributes are those of the function that holds it"
    general = find_refusal(node, scores, facts)
    if general:
        return general
    shape, added, axis = facts.shape(scores), facts.shape(bias), node.attributes.get_int("axis", 1)
    if axis != -1 and (shape is None or axis != len(shape) - 1):
        return f"{name} that makes all axes from {axis} on one row, and {axis} is not known to be the last"
    if shape is None or added is None or not _is_addend(shape, added):
        return f"{name} whose shapes do not prove that the bias broadcasts to the scores"
    return ""


def _is_addend(scores: Sequence[int | str | None], bias: Sequence[int | str | None]) -> bool:
    pairs = list(zip(reversed(scores), reversed(bias), strict=False))
    return len(bias) <= len(scores) and all(b == 1 or (s == b and s is not None) for s, b in pairs)


def _make_body(node: ir.Node, opset: int, facts: Facts) -> onnx.FunctionProto:
    del node, facts
    return parse_body(opset, ["x", "bias"], ["y"], ["S = Add (x, bias)", "y = Softmax <axis: int = -1> (S)"])


FORM = Form("bias-softmax", "onnxruntime's BiasSoftmax, the softmax of a sum", match, make_body_opener(_make_body))
