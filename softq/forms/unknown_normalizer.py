"""Exponentials of scores over something that is made of all of them, where no other form recognises the softmax."""

from __future__ import annotations

import onnx_ir as ir

import softq.forms
from softq.forms import Form, Match
from softq.forms.matching.exponentials import find_exponential
from softq.forms.matching.layout_ops import are_same, follow
from softq.forms.matching.reductions import find_reduction
from softq.graph.facts import Facts
from softq.graph.patterns import match as matches_pattern
from softq.graph.queries import is_op, node_label, operand, producer, values_above
from softq.site import Verdict

_MOST = 48
"""Nodes below an exponential that are looked at: from there to its quotient are at most a dozen."""

_DEPTH = 8

_SUMS = ("ReduceSum", "ReduceL1", "ReduceMean", "ReduceLogSum", "Einsum", "LpNormalization", "MatMul", "Sum", "Gemm")
"""What may add exponentials up."""


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the exponentials; what becomes of them is another form's matter, or is named here."""
    if not is_op(node, "Exp", "Pow") or len(node.outputs) != 1:
        return None
    exponential = find_exponential(node.outputs[0], facts)
    if exponential is None:
        return None
    below = _find_below(node.outputs[0])
    last = next((n for n in below if _divisor(n, node.outputs[0], below) is not None), None)
    divisor = None if last is None else _divisor(last, node.outputs[0], below)
    if last is None or divisor is None:
        return None
    between = [v.producer() for v in values_above(divisor, lambda n: n in below, _MOST)]
    summed = next((n for n in between if is_op(n, *_SUMS) and n in below), None)
    if summed is None:
        return None
    # Without a maximum only sums of the exponentials themselves tell that this is about a softmax.
    directly = follow(operand(summed, 0) or divisor, facts).source is node.outputs[0] and not is_op(
        summed, "MatMul", "Sum"
    )
    if not directly and not _is_less_maximum(exponential.exponent, facts):
        return None
    others = [form for form in softq.forms.FORMS.entries().values() if form is not FORM]
    if any(form.match(n, facts) is not None for n in (node, *below) for form in others):
        return None
    if is_op(summed, "ReduceSum", "ReduceL1"):
        products = any(is_op(n, "MatMul", "Gemm", "Einsum") and n is not last and _leads_to(n, last) for n in below)
        why = "in front of it stands the product with the values" if products else "what is between is not recognised"
    else:
        why = f"{summed.op_type} of node {node_label(summed)} adds them up, not ReduceSum"
    text = f"node {node_label(last)} normalizes exponentials of scores (node {node_label(node)}), but {why}"
    return Match(f"Exp/{summed.op_type}", None, None, None, Verdict("refuse", text))


def _find_below(value: ir.Value) -> list[ir.Node]:
    """Return the nodes that a value goes into, the nearest first."""
    found: dict[ir.Node, int] = {}
    waiting = [(value, 0)]
    while waiting and len(found) < _MOST:
        current, depth = waiting.pop(0)
        for reader in current.consumers():
            if reader not in found and depth < _DEPTH and reader.graph is value.graph:
                found[reader] = depth
                waiting += [(output, depth + 1) for output in reader.outputs]
    return list(found)


def _comes_from(value: ir.Value | None, source: ir.Value, below: list[ir.Node]) -> bool:
    return value is not None and (value is source or value.producer() in below)


def _leads_to(node: ir.Node, last: ir.Node) -> bool:
    return any(last in _find_below(output) for output in node.outputs)


def _divisor(node: ir.Node, source: ir.Value, below: list[ir.Node]) -> ir.Value | None:
    """Return by what a node divides what is made of exponentials, if that is made of them too."""
    if is_op(node, "LpNormalization"):
        p = node.attributes.get("p")
        return node.outputs[0] if p is not None and not p.is_ref() and p.as_int() == 1 else None
    first, second = operand(node, 0), operand(node, 1)
    both = _comes_from(first, source, below) and _comes_from(second, source, below)
    if is_op(node, "Div") and both:
        return second
    if is_op(node, "Mul") and both:
        return next((v for v in (first, second) if producer(v, "Reciprocal", "Pow", "Div") is not None), None)
    if is_op(node, "Sub") and _comes_from(second, source, below):
        return second if producer(second, "ReduceLogSum", "Log") is not None else None
    return None


def _is_less_maximum(exponent: ir.Value, facts: Facts) -> bool:
    """Say whether a value is scores less their own maximum."""
    difference = matches_pattern(follow(exponent, facts).source, "Sub(x, maximum)")
    if difference is None:
        return False
    maximum = find_reduction(follow(difference["maximum"], facts), ["ReduceMax"], facts)
    return maximum is not None and are_same(maximum.source, follow(difference["x"], facts).source)


FORM = Form(
    "unknown-normalizer",
    "Exponentials over something else than their ReduceSum: a product or a mean, or behind the product with the values",
    match,
    verdict="refuse",
    last=True,
)
