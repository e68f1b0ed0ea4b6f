"""The exponential of a LogSoftmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import Moved, follow, is_plain
from softq.forms.matching.opening import Opener, Row
from softq.forms.matching.operators import find_axis, match_operator
from softq.graph.queries import is_op, operand, producer


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the exponential."""
    found = _find(node, facts)
    if found is None:
        return None
    operator, behind = found
    axis = find_axis(operator, facts)
    inner = match_operator(operator, axis, facts)
    plain = is_plain(behind.path)
    note = f"its row spans the last {-axis.axis} axes" if axis.flattened and axis.axis is not None else ""
    return replace(
        inner, operator="LogSoftmax/Exp", weights=node.outputs[0], axis=axis.axis if plain else None,
        scores=inner.scores if plain else None, note=note,
    )  # fmt: skip


def open_exponential(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Write each as a softmax."""
    opener = Opener(model)
    opened: list[ir.Node] = []
    for node in nodes:
        found = _find(node, opener.facts)
        assert found is not None, "what was located is still there"
        operator, behind = found
        scores, axis = operand(operator, 0), find_axis(operator, opener.facts).axis
        assert scores is not None, "what was located is still there"
        assert axis is not None, "a row of unknown axes is refused"
        opened.append(opener.open(node, Row(scores, (axis,)), behind.path))
    return opened


def _find(node: ir.Node, facts: Facts) -> tuple[ir.Node, Moved] | None:
    inside = operand(node, 0) if is_op(node, "Exp") else None
    if inside is None:
        return None
    behind = follow(inside, facts, any_reshape=True)
    operator = producer(behind.source, "LogSoftmax")
    return None if operator is None else (operator, behind)


FORM = Form(
    name="exp-of-log-softmax",
    summary="Exp(LogSoftmax(x)), which is a softmax",
    match=match,
    open=open_exponential,
    stage=1,
)
