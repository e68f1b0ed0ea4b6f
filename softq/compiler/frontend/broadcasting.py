"""Shapes that are broadcast to each other where only the run tells which dimensions are equal, and which are 1.

The dimension of the result is then an expression of both; that they fit is a condition on the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Node
from softq.compiler.frontend.parameters import emit
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, same_shape, simplified, size
from softq.errors import RefusalError

_BROADCASTING = frozenset({
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
})  # fmt: skip


def broadcast_shape(node: Node, a: Sequence[Dim], b: Sequence[Dim]) -> list[Dim]:
    """Return the shape to which two shapes broadcast."""
    rank = max(len(a), len(b))
    pairs = zip([1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b), strict=True)
    return [_broadcast(node, plain(x), plain(y)) for x, y in pairs]


def _broadcast(node: Node, x: Dim, y: Dim) -> Dim:
    if equal(x, y) or (isinstance(y, int) and y == 1):
        return x
    if isinstance(x, int) and x == 1:
        return y
    if isinstance(x, int) and isinstance(y, int):
        raise RefusalError(f"{node.operator} {node.name!r}: dimensions {x} and {y} do not fit")
    a, b = expression(x), expression(y)
    fits = (a - b) * ((1 if isinstance(x, int) else a - 1) * (1 if isinstance(y, int) else b - 1))
    because = f"{node.operator} {node.name} has dimensions {x} and {y}, which do not fit"
    node.require(Limit(size(fits), 0, 0, because))
    if isinstance(x, int) or isinstance(y, int):
        return x if isinstance(x, int) else y
    # The greater one, but nothing where one is 0.
    return simplified(tirx.max(a, b) * tirx.min(a, 1) * tirx.min(b, 1))


def expand(node: Node, value: relax.Expr, shape: Sequence[Dim]) -> relax.Expr:
    """Return the value broadcast to a shape."""
    dims = [plain(d) for d in node.importer.dims(value, node.name)]
    if same_shape(dims, shape):
        return value
    shape = [expression(d) for d in shape]
    own = shape[len(shape) - len(dims) :]
    if all(equal(d, wanted) or (isinstance(d, int) and d == 1) for d, wanted in zip(dims, own, strict=True)):
        return node.emit(relax.op.broadcast_to(value, shape))

    def compute(tensor: Any, target: Any) -> Any:
        def element(*at: Any) -> Any:
            first = len(at) - len(tensor.shape)
            return tensor[tuple(map(_place, at[first:], tensor.shape, target[first:]))]

        return te.compute(target, element, name="expanded")

    return emit(node, "expanded", compute, value, shape)


def _place(at: Any, length: Any, wanted: Any) -> Any:
    """Return the place along an axis of which an element is made: the first one where there is no other."""
    if equal(length, wanted):
        return at
    return expression(0) if plain(length) == 1 else at * tirx.min(length - 1, 1)


def broadcast_inputs(node: Node) -> None:
    """Give a node's inputs the shape of its result where their dimensions are not known to fit."""
    if node.operator not in _BROADCASTING:
        return
    given = [i for i in range(len(node.inputs)) if node.has(i)]
    shapes = [[plain(d) for d in node.shape(i)] for i in given]
    target: list[Dim] = []
    for shape in shapes:
        target = broadcast_shape(node, target, shape)
    if all(_fits(shape, target) for shape in shapes):
        return
    names = list(node.inputs)
    for position, shape in zip(given, shapes, strict=True):
        if not _fits(shape, target):
            expanded = expand(node, node.tensor(position), target)
            names[position] = node.importer.new_name("expanded")
            node.importer.tensors[names[position]] = expanded
    node.inputs = names


def _fits(shape: Sequence[Dim], target: Sequence[Dim]) -> bool:
    own = target[len(target) - len(shape) :]
    return all(equal(d, wanted) or (isinstance(d, int) and d == 1) for d, wanted in zip(shape, own, strict=True))
