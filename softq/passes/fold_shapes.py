"""Compute sizes that are known while some of their neighbours are not.

Exported models take the shape of an input apart, calculate, and put it together again. Of a shape `(batch, 9, 64)` the
numbers are known and the name is not; every element is followed on its own, and a value all of whose elements are known
becomes a constant. Nodes with an unknown element stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.graph.constants import Array, become_constants, evaluate
from softq.graph.queries import constant, has_references
from softq.graph.view import Container, ModelView
from softq.passes import PassEntry

_LIMIT = 512
"""Bytes of the largest constant that is followed: a shape has one int64 per dimension."""

_MOST = 4096
"""Elements of a node's operands and results: outer sums of the elements of shapes are not followed further."""

_MOVES = frozenset(
    {"Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Their results hold elements of their operands: what is known moves as the elements do."""

_ELEMENTWISE = frozenset(
    {"Abs", "Add", "And", "Cast", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"}
    | {"Mod", "Mul", "Neg", "Not", "Or", "Sub"}
)
"""An element of their results is known where those of all operands are."""


@dataclass(frozen=True)
class _Partial:
    """Elements, and which of them are known; the others hold 1, which every operator here can compute with."""

    elements: Array
    known: NDArray[np.bool_]


class FoldShapes(ir.passes.InPlacePass):
    """Replaces sizes that follow from known dimensions by constants."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Compute them; `modified` says whether there were any."""
        modified = False
        values: dict[ir.Value, _Partial] = {}
        for container in ModelView(model).containers:
            for node in list(container.body):
                results = None if node.domain or has_references(node) else _follow(node, container, values)
                if results is None:
                    continue
                if node.op_type != "Constant" and all(result.known.all() for result in results):
                    modified |= become_constants(node, [result.elements for result in results], container)
                else:
                    values.update(zip(node.outputs, results, strict=True))
        return ir.passes.PassResult(model, modified)


def _follow(node: ir.Node, container: Container, values: Mapping[ir.Value, _Partial]) -> list[_Partial] | None:
    if node.op_type in ("Shape", "Size"):
        return _follow_shape(node, values)
    if node.op_type not in _MOVES | _ELEMENTWISE or not all(value.name for value in node.outputs):
        return None
    operands = [None if value is None else values.get(value) or _read_whole(value) for value in node.inputs]
    present = [operand for operand in operands if operand is not None]
    if not present or len(present) != sum(value is not None for value in node.inputs):
        return None
    arrays = [None if o is None else o.elements for o in operands]
    elements = evaluate(node, container.opset, arrays, most=_MOST)
    if elements is None:
        return None
    if node.op_type in _ELEMENTWISE:
        known = np.logical_and.reduce(np.broadcast_arrays(*(operand.known for operand in present)))
        return [_Partial(elements[0], known)]
    # Axes, indices and shapes must be known themselves.
    data = len(operands) if node.op_type == "Concat" else 1
    if not all(operand is None or operand.known.all() for operand in operands[data:]):
        return None
    marks = [o and (o.known.astype(np.int64) if k < data else o.elements) for k, o in enumerate(operands)]
    moved = evaluate(node, container.opset, marks)
    if moved is None:
        return None
    return [_Partial(e, m.astype(np.bool_)) for e, m in zip(elements, moved, strict=True)]


def _read_whole(value: ir.Value) -> _Partial | None:
    array = constant(value, _LIMIT)
    return None if array is None else _Partial(array, np.ones(array.shape, np.bool_))


def _follow_shape(node: ir.Node, values: Mapping[ir.Value, _Partial]) -> list[_Partial] | None:
    source = node.inputs[0]
    followed = None if source is None else values.get(source)
    shape = None if source is None else source.shape if followed is None else ir.Shape(followed.elements.shape)
    if shape is None:
        return None
    sizes = [dim if isinstance(dim, int) else None for dim in shape]
    elements = np.array([1 if size is None else size for size in sizes], np.int64)
    known = np.array([size is not None for size in sizes], np.bool_)
    if node.op_type == "Size":
        return [_Partial(np.array(elements.prod(), np.int64), np.array(known.all()))]
    part = slice(node.attributes.get_int("start", 0), node.attributes.get_int("end", None))
    return [_Partial(elements[part], known[part])]


PASS = PassEntry("fold-shapes", FoldShapes, "Compute sizes that follow from known dimensions")
