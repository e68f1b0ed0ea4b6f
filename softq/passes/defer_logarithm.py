"""Take the logarithm of a replaced softmax from its scores: log p = (score - max) - log(normalizer).

The logarithm of the weight itself would be -inf where the weight is too small for its type, and inexact just above.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from softq.graph.edits import add_cast, add_constant, remove_if_unused, row_shape, take_over
from softq.graph.patterns import match
from softq.graph.queries import graph_of
from softq.passes import PassEntry
from softq.passes.analysis.readers import Logarithm, find_logarithms
from softq.passes.replace import Pair, pairs_of


class DeferLogarithm(ir.passes.InPlacePass):
    """Rewrites each logarithm of weights that are the exponentials of the distances from the row's maximum.

    Only methods that say so (`Method.logarithms`) get softmaxes whose logarithm is taken.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the logarithms; `modified` says whether there were any."""
        modified = False
        for value, pair in pairs_of(model):
            logarithms = find_logarithms(value) if pair.exponential else []
            for logarithm in logarithms:
                _rewrite(value, pair, logarithm)
            if logarithms:
                remove_if_unused(value.producer())
                modified = True
        return ir.passes.PassResult(model, modified)


def _rewrite(weights: ir.Value, pair: Pair, logarithm: Logarithm) -> None:
    tape = Tape()
    old = logarithm.node.outputs[0]
    base, shape, row = old.name or "logarithm", weights.shape, row_shape(weights.shape)

    # Scores that were cast down, behind their maximum, are taken as they were: a mask may lie below float32's least.
    call = pair.weights.producer()
    given = None if call is None else call.inputs[0]
    assert given is not None, "the weights are what the function gives for scores"
    narrowed = match(given, "Cast(x)")
    is_double = narrowed is not None and narrowed["x"].dtype is ir.DataType.DOUBLE
    real = ir.DataType.DOUBLE if is_double else ir.DataType.FLOAT

    def add(operator: str, name: str, shape: ir.Shape | None, *inputs: ir.Value, dtype: ir.DataType = real) -> ir.Value:
        attributes = {"to": int(dtype)} if operator == "Cast" else {}
        out = ir.val(f"{base}.{name}.out", dtype, shape)
        return tape.op(operator, inputs, attributes, name=f"{base}.{name}", output=out)

    scores = narrowed["x"] if narrowed is not None and is_double else given
    if scores.dtype is not real:
        scores = add("Cast", "widen", shape, scores)
    axes = add_constant(tape, np.array([-1], np.int64), f"{base}.axes")
    distance = add("Sub", "distance", shape, scores, add("ReduceMax", "max", row, scores, axes))
    total = add("Log", "log_normalizer", row, pair.normalizer, dtype=ir.DataType.FLOAT)
    if is_double:
        total = add("Cast", "total", row, total)
    value = add("Sub", "log", shape, distance, total)
    if not is_double:
        value = add_cast(tape, value, weights, f"{base}.narrow")
    for number, moving in enumerate(logarithm.path):
        name, like = f"{base}.move{number}", moving.outputs[0]
        out = ir.val(f"{name}.out", shape=like.shape, type=like.type)
        value = tape.op(moving.op_type, [value, *moving.inputs[1:]], dict(moving.attributes), name=name, output=out)
    graph_of(logarithm.node).insert_before(logarithm.node, tape.nodes)
    take_over(old, value)
    remove_if_unused(logarithm.node)


PASS = PassEntry(
    "defer-logarithm", DeferLogarithm, "Take the logarithm of a replaced softmax from its scores, not from its weights"
)
