"""Weights by which something is chosen: the walk from weights to operators that pick, compare or scatter.

The walk goes on while a result still orders the weights or pools them. It ends at a product with values, whose result
holds no weights, at operators of other domains, and at graph outputs.
"""

from __future__ import annotations

import onnx_ir as ir

from softq.forms.matching.layout_ops import read_axes
from softq.forms.matching.weighing import is_of_softmax, is_pooling
from softq.graph.facts import Facts
from softq.graph.queries import MOVES_ONLY, SAME_VALUES, cast_target, is_constant, is_op, operand, top_above
from softq.graph.view import Use

_CHOOSING = {"TopK", "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "NonZero"} | {
    "Multinomial", "Bernoulli", "NonMaxSuppression", "Sign", "Unique",
}  # fmt: skip
_SCATTERING = {"Scatter", "ScatterElements", "ScatterND"}
_GOING_ON = MOVES_ONLY | SAME_VALUES | _SCATTERING | {
    "QuantizeLinear", "DequantizeLinear", "Where", "Clip", "Max", "Min", "Pad", "GatherElements", "GatherND", "Trilu",
    "Log", "Exp", "Sqrt", "Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Pow", "Reciprocal", "Round", "Floor", "Ceil",
    "Elu", "Erf", "HardSigmoid", "LeakyRelu", "Softplus", "Softmax", "LogSoftmax", "ReduceMean", "ReduceSum",
    "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceProd", "Sum", "Mean", "CumSum", "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "GlobalMaxPool",
    "Resize", "LpNormalization", "LayerNormalization", "InstanceNormalization", "BatchNormalization",
}  # fmt: skip
"""Moves, casts, functions that rise or fall with each weight, and pooling."""

_MOST = 512


def find_choice(weights: ir.Value, axis: int | None, facts: Facts) -> tuple[ir.Node | None, str]:
    """Return the first operator that chooses by weights, and the name of a graph output that shows them, or empty."""
    output, waiting, seen = "", [weights], {weights}
    for value in waiting:
        for use in facts.view.uses(value):
            if use.node is None:
                output = output or str(facts.view.model.graph.outputs[use.index].name)
            elif _chooses(use):
                return use.node, output
            elif _goes_on(use, weights, axis, facts) and len(seen) < _MOST:
                handed_on = use.node.outputs if use.node.op_type == "Split" else use.node.outputs[:1]
                waiting += [result for result in handed_on if result not in seen]
                seen.update(handed_on)
    return None, output


def _chooses(use: Use) -> bool:
    # The weights are written, or are the positions of other values.
    places = is_op(use.node, *_SCATTERING, "Gather", "GatherElements", "GatherND") and use.index > 0
    return is_op(use.node, *_CHOOSING) or places or (use.node and cast_target(use.node)) == ir.DataType.BOOL


def _goes_on(use: Use, weights: ir.Value, axis: int | None, facts: Facts) -> bool:
    node, index = use.node, use.index
    assert node is not None, "graph outputs were asked for before"
    if is_op(node, "ReduceSum", "ReduceL1") and axis is not None and (shape := facts.shape(weights)) is not None:
        # The sum of a row of weights is 1.
        is_row = read_axes(node, facts) in {(axis,), (axis + len(shape),)}
        return not is_row or top_above(node.inputs[0], *SAME_VALUES) is not weights
    if is_op(node, *_GOING_ON) or (is_op(node, "Einsum") and len(node.inputs) == 1):
        return index == 0 or node.op_type in {"Concat", "Where", "Max", "Min", "Sum", "Mean"}
    other = operand(node, 1 - index) if index < 2 else None
    if is_op(node, "Add", "Sub", "Mul", "Div"):
        shape = facts.shape(node.inputs[index])
        keeps = is_constant(other) or (shape is not None and shape == facts.shape(node.outputs[0]))
        return keeps and not (is_op(node, "Mul") and is_pooling(use, axis, facts))
    mixes = is_op(node, "MatMul", "Gemm", "Einsum", "Conv")
    return mixes and other is not None and (is_constant(other) or is_of_softmax(other))
