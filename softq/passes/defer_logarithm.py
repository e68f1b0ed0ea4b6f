"""Take the logarithm of a replaced softmax from its scores: log p = (score - max) - log(normalizer).

The logarithm of the weight itself would be -inf where the weight is too small for its type, and inexact just above.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.passes import PassEntry
from softq.passes._edit import cast_like, constant, floats, remove_if_unused, scalar_shape, take_over
from softq.passes._graph import ModelView
from softq.passes._logarithms import Logarithm, find_logarithms
from softq.passes.replace import PAIR_KEY, Pair


class DeferLogarithm(ir.passes.InPlacePass):
    """Rewrites each logarithm of weights that are the exponentials of the distances from the row's maximum.

    Only methods that say so (`Method.logarithms`) get softmaxes whose logarithm is taken.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the logarithms; `modified` says whether there were any."""
        modified = False
        for container in ModelView(model).containers:
            for node in list(container.body):
                for value in node.outputs:
                    pair = value.meta.get(PAIR_KEY)
                    if not isinstance(pair, Pair) or pair.weights.graph is not value.graph or not pair.exponential:
                        continue
                    logarithms = find_logarithms(value)
                    modified = modified or bool(logarithms)
                    for logarithm in logarithms:
                        _rewrite(value, pair, logarithm)
                    if logarithms:
                        remove_if_unused(node)
        return ir.passes.PassResult(model, modified)


def _rewrite(weights: ir.Value, pair: Pair, logarithm: Logarithm) -> None:
    before: list[ir.Node] = []
    old = logarithm.node.outputs[0]
    base, shape = old.name or "logarithm", weights.shape

    def add(operator: str, name: str, shape: ir.Shape | None, *inputs: ir.Value) -> ir.Value:
        node = ir.node(operator, inputs, name=f"{base}.{name}")
        before.append(node)
        return floats(node.outputs[0], f"{base}.{name}.out", shape)

    scores = pair.scores
    if scores.dtype is not ir.DataType.FLOAT:
        widened = ir.node("Cast", [scores], {"to": int(ir.DataType.FLOAT)}, name=f"{base}.widen")
        before.append(widened)
        scores = floats(widened.outputs[0], f"{base}.scores", shape)
    axes = constant(np.array([-1], np.int64), f"{base}.axes", before)
    greatest = add("ReduceMax", "max", scalar_shape(shape), scores, axes)
    distance = add("Sub", "distance", shape, scores, greatest)
    total = add("Log", "log_normalizer", scalar_shape(shape), pair.normalizer)
    value = cast_like(add("Sub", "log", shape, distance, total), weights, before, f"{base}.narrow")
    for number, moving in enumerate(logarithm.path):
        copy = ir.Node("", moving.op_type, [value, *moving.inputs[1:]], [*moving.attributes.values()])
        copy.name = f"{base}.move{number}"
        before.append(copy)
        value = copy.outputs[0]
        value.name, value.type = f"{copy.name}.out", moving.outputs[0].type
        value.shape = moving.outputs[0].shape
    graph = logarithm.node.graph
    assert graph is not None, "a node of a model belongs to a graph"
    graph.insert_before(logarithm.node, before)
    take_over(old, value)
    remove_if_unused(logarithm.node)


PASS = PassEntry(
    "defer-logarithm", DeferLogarithm, "take the logarithm of a replaced softmax from its scores, not from its weights"
)
