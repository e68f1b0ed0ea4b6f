"""Operators whose result is their input in another shape, or numbers made of a shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.shape_folding import sizes, static
from softq.compiler.ops.data_movement import CumSumOp
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, product, quotient, same_shape, simplified, size
from softq.errors import RefusalError


def reshape(node: Node, value: relax.Expr, shape: list[Dim]) -> relax.Expr:
    """Return the value with these dimensions, itself if it has them."""
    dims = node.importer.dims(value, node.name)
    if same_shape(dims, shape):
        return value
    there, wanted = product(dims), product(shape)
    if not equal(there, wanted):
        spare = simplified(expression(there) - expression(wanted))
        if isinstance(spare, int) and spare:
            raise RefusalError(f"{node.operator} {node.name!r}: {there} elements do not fill the shape {shape}")
        because = f"{node.operator} {node.name} has elements that its shape has no place for"
        node.require(Limit(size(spare), 0, 0, because))
    if any(isinstance(d, int) and d == 0 for d in map(plain, shape)):
        # Relax takes a 0 for "as it is"; a tensor without elements may as well be a new one.
        empty = relax.ShapeExpr([expression(d) for d in shape])
        return node.emit(relax.op.zeros(empty, str(value.ty.dtype)))
    return node.emit(relax.op.reshape(value, [expression(d) for d in shape]))


def expand(node: Node, value: relax.Expr, shape: list[Dim]) -> relax.Expr:
    """Return the value broadcast to a shape."""
    if same_shape(node.importer.dims(value, node.name), shape):
        return value
    return node.emit(relax.op.broadcast_to(value, [expression(d) for d in shape]))


def broadcast_shape(node: Node, a: list[Dim], b: list[Dim]) -> list[Dim]:
    """Return the shape to which two shapes broadcast."""
    rank = max(len(a), len(b))
    result: list[Dim] = []
    for x, y in zip([1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b), strict=True):
        x, y = plain(x), plain(y)
        if equal(x, y) or y == 1:
            result.append(x)
        elif x == 1 and isinstance(x, int):
            result.append(y)
        else:
            raise RefusalError(f"{node.operator} {node.name!r}: dimensions {x} and {y} are not known to be equal")
    return result


def axes_of(node: Node) -> list[int]:
    """Return the axes that a node names by its second input or by its attribute."""
    given = static(node.sizes(1)) if node.has(1) else np.array(node.attributes["axes"])
    if given is None:
        raise RefusalError(f"{node.operator} {node.name!r}: its axes are not constant")
    return [int(a) for a in given.ravel()]


def _reshape(node: Node) -> list[relax.Expr]:
    return [reshape(node, node.tensor(0), _target(node, node.shape(0), list(node.sizes(1).ravel())))]


def _target(node: Node, dims: list[Dim], wanted: list[Dim]) -> list[Dim]:
    """Return the shape that Reshape asks for, with 0 and -1 resolved."""
    if not node.attributes.get("allowzero", 0):
        wanted = [dims[i] if isinstance(d, int) and d == 0 else d for i, d in enumerate(wanted)]
    open_axes = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == -1]
    if open_axes:
        rest = [d for i, d in enumerate(wanted) if i not in open_axes]
        wanted[open_axes[0]] = quotient(dims, rest)
    return wanted


def _flatten(node: Node) -> list[relax.Expr]:
    dims, axis = node.shape(0), node.attributes.get("axis", 1)
    axis += len(dims) if axis < 0 else 0
    return [reshape(node, node.tensor(0), [product(dims[:axis]), product(dims[axis:])])]


def _squeeze(node: Node) -> list[relax.Expr]:
    dims = [plain(d) for d in node.shape(0)]
    if node.has(1) or "axes" in node.attributes:
        axes = [node.axis(a, len(dims)) for a in axes_of(node)]
    else:
        axes = [i for i, d in enumerate(dims) if isinstance(d, int) and d == 1]
    return [reshape(node, node.tensor(0), [d for i, d in enumerate(dims) if i not in axes])]


def _unsqueeze(node: Node) -> list[relax.Expr]:
    dims, axes = list(node.shape(0)), axes_of(node)
    rank = len(dims) + len(axes)
    for axis in sorted(node.axis(a, rank) for a in axes):
        dims.insert(axis, 1)
    return [reshape(node, node.tensor(0), dims)]


def _expand(node: Node) -> list[relax.Expr]:
    dims, wanted = [plain(d) for d in node.shape(0)], [plain(d) for d in node.sizes(1).ravel()]
    return [expand(node, node.tensor(0), broadcast_shape(node, dims, wanted))]


def _range(node: Node) -> list[relax.Expr]:
    start, limit, delta = (sizes(node.sizes(i).ravel()[0], ()).item() for i in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise RefusalError(f"Range {node.name!r}: its step is not a constant")
    dtype = node.importer.tensor(node.inputs[0]).ty.dtype
    low, high = (start, limit) if delta > 0 else (limit, start)
    span = simplified(expression(high) - expression(low))
    if isinstance(span, int) and span < 0:
        limit = start
    elif not isinstance(span, int):
        node.require(Limit(size(span), 0, 2**40, f"Range {node.name} ends before it begins"))
    values = relax.op.arange(expression(start), expression(limit), expression(delta), "int64")
    result = node.emit(values)
    return [result if str(dtype) == "int64" else node.emit(relax.op.astype(result, dtype))]


def _constant_of_shape(node: Node) -> list[relax.Expr]:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    shape = [expression(d) for d in node.sizes(0).ravel()]
    return [node.emit(relax.op.full(shape, constant(value.reshape(())), str(value.dtype)))]


def _cum_sum(node: Node) -> list[relax.Expr]:
    dims = node.shape(0)
    axis = node.axis(axes_of(node)[0], len(dims))
    flat = [product(dims[:axis]), dims[axis], product(dims[axis + 1 :])]
    call = CumSumOp(bool(node.attributes.get("exclusive", 0)), bool(node.attributes.get("reverse", 0)))
    x = reshape(node, node.tensor(0), flat)
    name = f"cumsum_{int(call.exclusive)}{int(call.reverse)}"
    summed = node.call(name, call, [x], relax.TensorType([expression(d) for d in flat], str(x.ty.dtype)))
    return [reshape(node, summed, dims)]


CONVERTERS: Mapping[str, Converter] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cum_sum,
    "Identity": lambda node: [node.tensor(0)],
}
