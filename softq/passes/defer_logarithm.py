"""Take the logarithm of a replaced softmax from its scores: log p = (score - max) - log(normalizer).

The logarithm of the weight itself would be -inf where the weight is too small for its type, and inexact just above.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.graph.edits import cast_like, constant, floats, remove_if_unused, scalar_shape, take_over
from softq.graph.queries import ModelView, operand, producer
from softq.passes import PassEntry
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

    # Scores that were cast down, behind their maximum, are taken as they were: a mask may lie below float32's least.
    call = pair.weights.producer()
    assert call is not None, "the weights are what the function gives"
    given = call.inputs[0]
    assert given is not None, "the function is given scores"
    narrowed = producer(given, "Cast")
    source = None if narrowed is None else operand(narrowed, 0)
    is_double = source is not None and source.dtype is ir.DataType.DOUBLE
    dtype = ir.DataType.DOUBLE if is_double else ir.DataType.FLOAT

    def add(operator: str, name: str, shape: ir.Shape | None, *inputs: ir.Value) -> ir.Value:
        attributes = {"to": int(dtype)} if operator == "Cast" else {}
        node = ir.node(operator, inputs, attributes, name=f"{base}.{name}")
        before.append(node)
        out = node.outputs[0]
        out.name, out.type, out.shape = f"{base}.{name}.out", ir.TensorType(dtype), shape
        return out

    scores = source if is_double and source is not None else given
    if scores.dtype is not dtype:
        scores = add("Cast", "widen", shape, scores)
    axes = constant(np.array([-1], np.int64), f"{base}.axes", before)
    greatest = add("ReduceMax", "max", scalar_shape(shape), scores, axes)
    distance = add("Sub", "distance", shape, scores, greatest)
    logarithm_of_sum = ir.node("Log", [pair.normalizer], name=f"{base}.log_normalizer")
    before.append(logarithm_of_sum)
    total = floats(logarithm_of_sum.outputs[0], f"{base}.log_normalizer.out", scalar_shape(shape))
    if is_double:
        total = add("Cast", "total", scalar_shape(shape), total)
    value = add("Sub", "log", shape, distance, total)
    if not is_double:
        value = cast_like(value, weights, before, f"{base}.narrow")
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
