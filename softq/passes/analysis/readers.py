"""Readers for which the scores of a softmax do as well as its weights.

Only the order of the weights is used by ArgMax, and by TopK with its values unused or normalised again: the softmax
rises with the score, so that the greatest weights belong to the greatest scores. What changes is ties alone: two scores
so close that their weights round to the same number are told apart by the scores. Of rows whose weights are NaN no
order is defined, and theirs may change. The logarithm of a weight is a difference of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.forms import Match
from softq.graph.facts import Facts
from softq.graph.patterns import match
from softq.graph.queries import constant, full_label, is_float_cast, is_op, producer

DROP_ARGMAX = "drop-argmax"
FUSE_TOPK = "fuse-topk"


@dataclass(frozen=True, eq=False)
class OrderOnly:
    """The one reader of a softmax, which uses the order of the weights only.

    Attributes:
        kind: Name of the pass that makes the softmax superfluous.
        reader: The ArgMax or TopK.
        normalized: The value that is the softmax of the TopK's scores; None if its values are not used.
    """

    kind: str
    reader: ir.Node
    normalized: ir.Value | None = None

    def explain(self) -> str:
        """Return why the scores do as well as the weights."""
        reader = full_label(self.reader)
        if self.normalized is not None:
            return f"{reader} picks weights that are divided by their sum, which gives the softmax of the picked scores"
        return f"only the order of its weights is used, by {reader}: the scores have the same order"


def find_order_only(match: Match, facts: Facts) -> OrderOnly | None:
    """Return the reader of a softmax for which its scores do as well, or None."""
    weights, scores = match.weights, match.scores
    if weights is None or scores is None or match.axis is None or match.verdict is not None:
        return None
    shape, uses = facts.shape(weights), weights.uses()
    if len(uses) != 1 or weights.is_graph_output() or shape is None or facts.dtype(weights) != facts.dtype(scores):
        return None
    reader, index = next(iter(uses))
    if index != 0 or reader.graph is not weights.graph or facts.shape(scores) is None:
        return None
    if not is_op(reader, "ArgMax", "TopK"):
        return None
    given = facts.view.attribute(reader, "axis")
    axis = (0 if reader.op_type == "ArgMax" else -1) if given is None else given.as_int()
    if axis not in (match.axis, match.axis + len(shape)):
        return None
    if is_op(reader, "ArgMax"):
        return OrderOnly(DROP_ARGMAX, reader)
    if not is_op(reader, "TopK") or facts.view.container_of(reader).opset < 13:
        return None
    largest, is_sorted = (facts.view.attribute(reader, name) for name in ("largest", "sorted"))
    if (largest is not None and largest.as_int() == 0) or (is_sorted is not None and is_sorted.as_int() == 0):
        return None
    values = reader.outputs[0]
    if not values.uses() and not values.is_graph_output():
        return OrderOnly(FUSE_TOPK, reader)
    normalized = None if match.operator == "LogSoftmax" else _find_normalized(values, match.axis, len(shape), facts)
    return None if normalized is None else OrderOnly(FUSE_TOPK, reader, normalized)


def _find_normalized(values: ir.Value, axis: int, rank: int, facts: Facts) -> ir.Value | None:
    """Return values / sum(values) if that is all they are used for."""
    result = next((node.outputs[0] for node in values.consumers() if is_op(node, "Div")), None)
    found = match(result, "Div(values, total := ReduceSum(values, axes))")
    if result is None or found is None or found["values"] is not values:
        return None
    total, axes = found["total"], constant(found["axes"])
    node = producer(total, "ReduceSum")
    keeps = None if node is None else facts.view.attribute(node, "keepdims")
    if axes is None or axes.reshape(-1).tolist() not in ([axis], [axis + rank]):
        return None
    if (keeps is not None and keeps.as_int() == 0) or values.is_graph_output() or total.is_graph_output():
        return None
    alone = len(values.uses()) == 2 and len(total.uses()) == 1
    return result if alone and result.graph is values.graph is total.graph else None


_MOVES = ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Gather")

_MOST_MOVES = 64


@dataclass(frozen=True, eq=False)
class Logarithm:
    """A logarithm of some weights.

    Attributes:
        node: The `Log`.
        path: The nodes that move or cast the weights before it, in order.
    """

    node: ir.Node
    path: tuple[ir.Node, ...]


def find_logarithms(weights: ir.Value) -> list[Logarithm]:
    """Return the logarithms that are taken of `weights` in their own graph, behind nodes that move or cast them.

    At most `_MOST_MOVES` nodes are looked behind.
    """
    found: list[Logarithm] = []
    waiting: list[tuple[ir.Value, tuple[ir.Node, ...]]] = [(weights, ())]
    for value, path in waiting:
        for reader, index in value.uses():
            if index != 0 or reader.graph is not weights.graph:
                continue
            if is_op(reader, "Log"):
                found.append(Logarithm(reader, path))
            elif (is_op(reader, *_MOVES) or is_float_cast(reader)) and reader.outputs and len(waiting) <= _MOST_MOVES:
                waiting.append((reader.outputs[0], (*path, reader)))
    return found
