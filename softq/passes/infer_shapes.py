"""Write types and shapes that ONNX can infer to the values of a model."""

from __future__ import annotations

import math
from collections import Counter

import onnx_ir as ir

from softq.graph.facts import copy_without_weights
from softq.graph.inference import infer_shapes
from softq.graph.queries import is_op, operand
from softq.graph.view import ModelView
from softq.passes import PassEntry


class InferShapes(ir.passes.InPlacePass):
    """Adds what `onnx.shape_inference` finds, with the data of small constants; weights are not copied for it.

    What the model says stays unless more is known: a number takes the place of a name, a name the place of nothing.
    Where the model contradicts itself, its own word stays, and what follows from the contradiction is left open.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Infer; `modified` says whether more is known than before."""
        modified, solved = False, True
        while solved:
            light = ir.to_proto(copy_without_weights(model))
            inferred = ir.from_proto(infer_shapes(light))
            solved = False
            for ours, theirs in zip(ModelView(model).containers, ModelView(inferred).containers, strict=True):
                for node, twin in zip(ours.body, list(theirs.body)[-len(ours.body) :], strict=True):
                    for value, known in zip(node.outputs, twin.outputs, strict=True):
                        modified |= _learn(value, known)
                    solved |= _learn_rank(node) or _solve_reshape(node)
            modified |= solved
        return ir.passes.PassResult(model, modified)


def _learn(value: ir.Value, known: ir.Value) -> bool:
    before = value.type, value.shape
    value.type = known.type if value.type is None else value.type
    value.shape = _merge(value.shape, known.shape)
    return (value.type, value.shape) != before


def _learn_rank(node: ir.Node) -> bool:
    """Give the result of a Reshape the rank that its target's length says, which ONNX leaves open."""
    target, result = operand(node, 1), node.outputs[0]
    if not is_op(node, "Reshape") or target is None or target.shape is None or result.shape is not None:
        return False
    if result.type is None:  # A shape without a type cannot be written to a file.
        return False
    rank = target.shape[0] if len(target.shape) == 1 else None
    if not isinstance(rank, int):
        return False
    result.shape = ir.Shape([None] * rank)
    return True


def _solve_reshape(node: ir.Node) -> bool:
    """Find the one size of a Reshape that ONNX leaves open, where the other dimensions cancel: both sides have as many
    elements. Where a dimension that cancels is 0 the size is not defined, and so is the Reshape.
    """
    source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
    if not is_op(node, "Reshape") or source is None or source.shape is None or result.shape is None:
        return False
    ours = Counter(str(dim) for dim in source.shape if not isinstance(dim, int))
    theirs = Counter(str(dim) for dim in result.shape if not isinstance(dim, int))
    open_dims = list((theirs - ours).elements())
    if ours - theirs or len(open_dims) != 1:
        return False
    total = math.prod(dim for dim in source.shape if isinstance(dim, int))
    rest = math.prod(dim for dim in result.shape if isinstance(dim, int))
    if rest == 0 or total % rest:
        return False
    position = max(k for k, dim in enumerate(result.shape) if str(dim) == open_dims[0])
    result.shape = ir.Shape([total // rest if k == position else dim for k, dim in enumerate(result.shape)])
    return True


def _merge(ours: ir.Shape | None, theirs: ir.Shape | None) -> ir.Shape | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    if len(ours) != len(theirs):
        return ours
    return ir.Shape([_dimension(a, b) for a, b in zip(ours, theirs, strict=True)])


def _dimension(ours: int | ir.SymbolicDim, theirs: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    if isinstance(ours, int):
        return ours
    return theirs if isinstance(theirs, int) or ours.value is None else ours


PASS = PassEntry("infer-shapes", InferShapes, "Write down the types and shapes that ONNX can infer")
