"""Exponentials times values over the sum of the exponentials: an attention whose division waits for the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from softq.errors import RefusalError
from softq.forms import Form, Match, exp_over_sum, exp_times_reciprocal
from softq.forms.matching.decomposed import match_decomposed
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.layout_ops import follow, is_plain
from softq.forms.matching.quotients import find_inverted, find_quotient
from softq.graph.edits import remove_if_unused, take_over
from softq.graph.facts import Facts
from softq.graph.patterns import matches
from softq.graph.queries import node_label, operand, producer
from softq.graph.rewriter import Rewriter


@dataclass(frozen=True, eq=False)
class _Deferred:
    """The operands of a product, what its result is divided by (or multiplied with), and the softmax in it."""

    exponentials: ir.Value
    values: ir.Value
    divisor: ir.Value
    softmax: Decomposed


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the quotient behind the product."""
    found = _find(node, facts)
    if found is None:
        return None
    operator = "Exp/MatMul/ReduceSum/" + node.op_type
    matched = match_decomposed(node, operator, found.softmax, facts)
    inside = matched.inside and replace(matched.inside, shape=facts.shape(found.exponentials))
    return replace(matched, weights=None, inside=inside, weighs=True)


def _find(node: ir.Node, facts: Facts) -> _Deferred | None:
    if not node.outputs:
        return None
    for pattern in ("Div(product, divisor)", "Mul(product, divisor) | Mul(divisor, product)"):
        for found in matches(node.outputs[0], pattern):
            product, divisor = producer(found["product"], "MatMul"), found["divisor"]
            if product is None:
                continue
            exponentials, values = operand(product, 0), operand(product, 1)
            shape = facts.shape(values)
            # A vector of values has no axis beside which the sum could stand.
            if exponentials is None or values is None or shape is None or len(shape) < 2:
                continue
            total = follow(divisor, facts) if node.op_type == "Div" else find_inverted(divisor, facts)
            softmax = total and find_quotient(follow(exponentials, facts), total, exponentials, facts)
            if softmax and softmax.axes in (None, (-1,)) and is_plain(softmax.moved.path):
                return _Deferred(exponentials, values, divisor, softmax)
    return None


def _open(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Divide in front of the product; what stands there then is another form's to open."""
    rewriter, quotients = Rewriter(model), list[ir.Node]()
    for node in nodes:
        found, facts, old = _find(node, rewriter.facts), rewriter.facts, node.outputs[0]
        if found is None:
            raise RefusalError(f"the softmax in front of node {node_label(node)} is part of another that was opened")
        stem, dtype = old.name or node_label(node), facts.dtype(old)
        weights = rewriter.add(
            node,
            node.op_type,
            [found.exponentials, found.divisor],
            f"{stem}_weights",
            dtype,
            facts.shape(found.exponentials),
        )
        product = rewriter.add(node, "MatMul", [weights, found.values], f"{stem}_product", dtype, facts.shape(old))
        quotient = weights.producer()
        assert quotient is not None, "it was written just now"
        quotients.append(quotient)
        take_over(old, product)
        remove_if_unused(node)
    opened: dict[ir.Node, ir.Node] = {}
    for form, operator in ((exp_over_sum.FORM, "Div"), (exp_times_reciprocal.FORM, "Mul")):
        here = [quotient for quotient in quotients if quotient.op_type == operator]
        assert form.open is not None, "it is no Softmax operator"
        opened |= zip(here, form.open(model, here), strict=True)
    return [opened[quotient] for quotient in quotients]


FORM = Form(
    "product-over-sum",
    "Exponentials times values, over the sum of the exponentials: the division behind the product",
    match,
    _open,
)
