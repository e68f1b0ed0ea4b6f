"""The exponential of a LogSoftmax."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import make_opener, read_operator
from softq.forms.matching.exponentials import Decomposed
from softq.forms.matching.layout_ops import Moved, follow, is_plain
from softq.forms.matching.operators import match_operator
from softq.graph.facts import Facts
from softq.graph.queries import is_op, operand, producer


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the exponential."""
    found = _find_operator(node, facts)
    if found is None:
        return None
    inner, plain = match_operator(found[0], facts), is_plain(found[1].path)
    axis, scores = (inner.axis, inner.scores) if plain else (None, None)
    return replace(inner, operator="LogSoftmax/Exp", weights=node.outputs[0], axis=axis, scores=scores)


def _find_operator(node: ir.Node, facts: Facts) -> tuple[ir.Node, Moved] | None:
    inside = operand(node, 0) if is_op(node, "Exp") else None
    behind = None if inside is None else follow(inside, facts, any_reshape=True)
    operator = None if behind is None else producer(behind.source, "LogSoftmax")
    return None if operator is None or behind is None else (operator, behind)


def _find(node: ir.Node, facts: Facts) -> Decomposed | None:
    found = _find_operator(node, facts)
    return found and read_operator(*found, facts)


FORM = Form("exp-of-log-softmax", "Exp(LogSoftmax(x)), which is a softmax", match, make_opener(_find), stage=1)
