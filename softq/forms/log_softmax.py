"""The operator LogSoftmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match
from softq.forms.matching.decomposed import read_by_exp_only
from softq.forms.matching.facts import Facts
from softq.forms.matching.opening import Opener, Row
from softq.forms.matching.operators import find_axis, match_operator
from softq.graph.queries import is_op, operand


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise a LogSoftmax, unless all that is made of it is its exponential, which is a form of its own."""
    if not is_op(node, "LogSoftmax") or read_by_exp_only(node.outputs[0], facts):
        return None
    axis = find_axis(node, facts)
    found = match_operator(node, axis, facts)
    note = f"its row spans the last {-axis.axis} axes" if axis.flattened and axis.axis is not None else ""
    return replace(found, note=note, logarithm=True)


def open_operator(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Write each as the logarithm of a softmax."""
    opener = Opener(model)
    opened: list[ir.Node] = []
    for node in nodes:
        scores, axis = operand(node, 0), find_axis(node, opener.facts).axis
        assert scores is not None, "what was located is still there"
        assert axis is not None, "a row of unknown axes is refused"
        opened.append(opener.open(node, Row(scores, (axis,)), (), logarithm=True))
    return opened


FORM = Form(
    name="log-softmax",
    summary="LogSoftmax (for methods that give logarithms)",
    match=match,
    open=open_operator,
    stage=2,
)
