"""Weights that are divided by their sum and are no exponentials of scores: linear attention, and StableMax."""

from __future__ import annotations

import onnx_ir as ir

from softq.forms import Form, Match, written_function
from softq.forms.matching.exponentials import read_number
from softq.forms.matching.features import find_scaled, is_product
from softq.forms.matching.layout_ops import are_same, follow
from softq.forms.matching.quotients import find_inverted
from softq.forms.matching.reductions import find_reduction
from softq.graph.facts import Facts
from softq.graph.patterns import matches
from softq.graph.queries import full_label, is_op, walk_above
from softq.site import Verdict


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the quotient."""
    if not is_op(node, "Div", "Mul") or len(node.outputs) != 1 or written_function.match(node, facts) is not None:
        return None
    for quotient in matches(node.outputs[0], "Div(above, below) | Mul(above, below) | Mul(below, above)"):
        total = follow(quotient["below"], facts) if is_op(node, "Div") else find_inverted(quotient["below"], facts)
        named = None if total is None else _name(quotient["above"], total.source, facts)
        if named is not None:
            return Match(named[0], None, None, None, Verdict("keep", f"{full_label(node)} {named[1]}, not a softmax"))
    return None


def _name(above: ir.Value, total: ir.Value, facts: Facts) -> tuple[str, str] | None:
    """Return the operators of a function and what it is."""
    source = follow(above, facts).source
    reduced = find_reduction(follow(total, facts), ["ReduceSum", "ReduceL1"], facts)
    if reduced is not None and are_same(reduced.source, source):
        if _is_stable(source, facts):
            return "Where/ReduceSum/Div", "is a StableMax, x + 1 or 1 / (1 - x) over their sum"
        if is_product(find_scaled(source)):
            return "MatMul/ReduceSum/Div", "divides products of queries and keys by their sum: linear attention"
        return None
    product = source.producer()
    if product is None or not is_product(product) or not any(is_product(find_scaled(v)) for v in product.inputs):
        return None
    sources = list(walk_above(total, lambda n: n is not product, 24))
    has_sum = any(is_op(v.producer(), "ReduceSum", "MatMul", "Einsum") for v in sources)
    if has_sum and not set(product.inputs).isdisjoint(sources):
        return "MatMul/MatMul/Div", "divides queries times (keys times values) by queries times keys: linear attention"
    return None


def _is_stable(value: ir.Value, facts: Facts) -> bool:
    return any(
        find_inverted(choice["falls"], facts) is not None and read_number(plus["one"]) == 1
        for choice in matches(value, "Where(c, rises, falls) | Where(c, falls, rises)")
        for plus in matches(choice["rises"], "Add(x, one) | Add(one, x)")
    )


FORM = Form(
    "other-weights",
    "Linear attention and StableMax, which are no softmax (kept)",
    match,
    verdict="keep",
    last=True,
)
