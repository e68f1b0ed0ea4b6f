"""Exponentials of scores over a sum of theirs, or over none, where no other form recognises the softmax.

Every use of the exponentials is followed through all containers. A result is linear in them while they are moved, cast,
added, bounded or multiplied by something else; a sum of them that a quotient divides by makes a site.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import onnx_ir as ir

import softq.forms
from softq.forms import Form, Match
from softq.forms.matching.exponentials import find_exponential, read_number
from softq.forms.matching.features import is_product
from softq.graph.facts import Facts
from softq.graph.queries import (
    MOVES_ONLY,
    SAME_VALUES,
    full_label,
    is_constant,
    is_op,
    node_label,
    operand,
    producer,
    top_above,
    walk_above,
)
from softq.graph.view import Use
from softq.site import Verdict

_MOST = 256
"""Values below an exponential that are looked at."""

_SUMS = {
    "ReduceSum", "ReduceL1", "ReduceMean", "Einsum", "MatMul", "Gemm", "Sum", "Mean", "CumSum", "ScatterElements",
    "ScatterND", "AveragePool", "LpPool", "GlobalAveragePool", "Conv", "ConvTranspose",
}  # fmt: skip
"""Operators that may add exponentials up."""

_LINEAR = MOVES_ONLY | SAME_VALUES | {
    "Add", "Sub", "Mul", "Where", "Clip", "Max", "Min", "Pad", "GatherElements", "GatherND", "Neg", "Trilu",
    "DepthToSpace", "SpaceToDepth",
}  # fmt: skip

_Below = dict[ir.Value, dict[str, ir.Node | None]]
"""The kinds of each value: `terms`, `sum`, `inverse`, `logarithm` (of a sum), `other`; with the node that adds up."""


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the exponentials; what becomes of them is another form's matter, or is named here."""
    if not is_op(node, "Exp", "Pow") or len(node.outputs) != 1 or find_exponential(node.outputs[0], facts) is None:
        return None
    below = _walk(node, facts)
    quotients = list(_find_quotients(node, below))
    kernel = None if quotients else _match_kernel(node, below)
    if not quotients and kernel is None:
        return None
    others = [form for form in softq.forms.FORMS.entries().values() if form is not FORM]
    matched = {n: m for v in below if (n := v.producer()) for f in others if (m := f.match(n, facts)) is not None}
    if any(node in other.nodes for other in matched.values()):
        return None
    for last, total in quotients:
        if last not in matched and not any(is_op(n, "Exp") and n in matched for n in last.outputs[0].consumers()):
            text = f"{full_label(last)} normalizes exponentials of scores"
            text += f" (node {node_label(node)}); {full_label(total)} adds them up, "
            text += _explain({node, total}, last, below)
            return Match(f"Exp/{total.op_type}", None, None, None, Verdict("refuse", text))
    return kernel


def _explain(known: set[ir.Node], last: ir.Node, below: _Below) -> str:
    if not any(is_op(node, "ReduceSum", "ReduceL1") for node in known):
        return "and softq recognises only sums of rows by ReduceSum or products with ones"
    above = (v for o in last.inputs if o for v in walk_above(o, lambda n: n not in known, 24) if v in below)
    between = ", ".join(dict.fromkeys(full_label(n) for v in above if (n := v.producer()) not in known and n))
    return "and softq does not recognise a softmax" + (f" with {between} before the division" if between else "")


def _walk(node: ir.Node, facts: Facts) -> _Below:
    """Return the values that are computed from exponentials, the nearest first, with their kinds."""
    twins = [n for n in (operand(node, len(node.inputs) - 1) or node.outputs[0]).consumers() if is_op(n, node.op_type)]
    starts = [node.outputs[0], *(twin.outputs[0] for twin in twins if twin is not node)]
    below: _Below = {start: {"terms": None} for start in starts}
    waiting = deque((start, "terms") for start in starts)
    while waiting and len(below) < _MOST:
        value, state = waiting.popleft()
        for use in facts.view.uses(value):
            if use.node is None:
                continue
            # The value that is read: of a loop or a function, its output.
            read = use.node.inputs[use.index]
            if read is not None:
                below.setdefault(read, {}).setdefault(state, below[value][state])
            new, total = _derive(use, state, below[value][state], node.outputs[0], facts)
            for result in use.node.outputs:
                if new not in below.setdefault(result, {}):
                    below[result][new] = total
                    waiting.append((result, new))
    return below


def _derive(use: Use, state: str, total: ir.Node | None, source: ir.Value, facts: Facts) -> tuple[str, ir.Node | None]:
    """Return the kind of the results of a node that reads a value of kind `state`, with the node that adds up."""
    node, index = use.node, use.index
    other = None if node is None or index > 1 else operand(node, 1 - index)
    if node is None or node.domain:
        return "other", None
    if state == "terms" and is_op(node, *_SUMS) and (index == 2 or "Scatter" not in node.op_type):
        return "sum", node
    if state == "terms" and is_op(node, "ReduceLogSum"):
        return "logarithm", node
    if state == "terms" and is_op(node, "Add"):
        moved = (top_above(v, *SAME_VALUES, "Squeeze", "Unsqueeze", "Reshape") for v in node.inputs)
        wholes = {cut and cut.inputs[0] for cut in (producer(v, "Split", "Slice", "Gather") for v in moved)}
        if (len(wholes) == 1 and None not in wholes) or _is_carried(other, facts) or _has_other_scores(other, source):
            return "sum", node
    if state == "sum" and is_op(node, "Log"):
        return "logarithm", total
    inverted = is_op(node, "Reciprocal") or (is_op(node, "Div") and index == 1 and is_constant(other))
    if state == "sum" and (inverted or (is_op(node, "Pow") and read_number(operand(node, 1)) == -1)):
        return "inverse", total
    if state == "logarithm" and is_op(node, "Exp"):
        return "inverse", total
    if is_op(node, "Mul") and other is not None and any(v is source for v in walk_above(other, lambda n: True, 64)):
        return "other", None
    keeps = is_op(node, *_LINEAR, *_SUMS) or (is_op(node, "Div") and index == 0 and is_constant(other))
    return (state, total) if keeps else ("other", None)


def _is_carried(value: ir.Value | None, facts: Facts) -> bool:
    """Whether a value is a state of a Loop or Scan, or a multiple of one, to which each run adds."""
    node = None if value is None else value.producer()
    values = [value, *(node.inputs if node is not None and is_op(node, "Mul") else ())]
    return any(v is not None and v.is_graph_input() and v.graph in facts.view.owners for v in values)


def _has_other_scores(value: ir.Value | None, source: ir.Value) -> bool:
    """Whether a value holds exponentials of other scores: e^x over e^x + e^-x is a sigmoid."""
    inner = [producer(v, "Exp") for v in (top_above(value, *MOVES_ONLY, *SAME_VALUES, "Mul"), source)]
    scores = [top_above(operand(node, 0), "Neg", "Mul", "Div") for node in inner if node is not None]
    return len(scores) == 2 and scores[0] is not scores[1]


def _find_quotients(node: ir.Node, below: _Below) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Yield each node that divides a value from exponentials by a sum of them, with the node that adds up."""
    exponent = operand(node, len(node.inputs) - 1)
    scores = set() if exponent is None else {v for v in walk_above(exponent, lambda n: True, 8) if not is_constant(v)}
    for value, states in below.items():
        for reader in value.consumers():
            first, second = operand(reader, 0), operand(reader, 1)
            if is_op(reader, "LpNormalization") and "terms" in states and reader.attributes.get_int("p", 2) == 1:
                yield reader, reader
            for state, total in states.items():
                if total is None or first is None:
                    continue
                divides = state == "sum" and is_op(reader, "Div") and second is value and first in below
                other = second if first is value else first
                divides = divides or (state == "inverse" and is_op(reader, "Mul") and other in below)
                logarithm = state == "logarithm" and is_op(reader, "Sub") and second is value
                if divides or (logarithm and not scores.isdisjoint(walk_above(first, lambda n: True, 8))):
                    yield reader, total


def _match_kernel(node: ir.Node, below: _Below) -> Match | None:
    """Recognise exponentials of products of queries and keys that multiply values and that nothing divides."""
    exponent = operand(node, len(node.inputs) - 1)
    if exponent is None or not any(
        is_product(v.producer()) for v in walk_above(exponent, lambda n: not is_product(n), 48)
    ):
        return None
    products = [s["sum"] for s in below.values() if is_product(s.get("sum"))]
    if not products or products[0] is None:
        return None
    what = f"{full_label(products[0])} multiplies values by the exponentials of node"
    why = "and nothing divides by their sum: a kernel of queries and keys as in SOFT, not a softmax"
    verdict = Verdict("keep", f"{what} {node_label(node)}, {why}")
    return Match(f"Exp/{products[0].op_type}", None, None, None, verdict)


FORM = Form(
    "unknown-normalizer",
    "Exponentials of scores over a sum in a spelling that is not known (refused), or over none (kept)",
    match,
    verdict="keep",
    last=True,
)
