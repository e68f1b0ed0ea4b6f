"""Operators that take positions as data: each is checked against its axis while the model runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from softq.compiler.frontend.broadcasting import expand
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.shape_folding import sizes
from softq.compiler.ops.data_movement import PositionsOp, ScatterOp
from softq.compiler.tir.symbolic import Dim, expression, plain, same_shape
from softq.errors import RefusalError


def _gather(node: Node) -> list[relax.Expr]:
    axis = node.axis(node.attributes.get("axis", 0), len(node.shape(0)))
    return [node.emit(relax.op.take(node.tensor(0), _positions(node, [node.shape(0)[axis]]), axis, mode="clip"))]


def _gather_elements(node: Node) -> list[relax.Expr]:
    axis = node.axis(node.attributes.get("axis", 0), len(node.shape(0)))
    return [node.emit(relax.op.gather_elements(node.tensor(0), _positions(node, [node.shape(0)[axis]]), axis))]


def _gather_nd(node: Node) -> list[relax.Expr]:
    batch = node.attributes.get("batch_dims", 0)
    positions = _positions(node, node.shape(0)[batch : batch + _depth(node)])
    return [node.emit(relax.op.gather_nd(node.tensor(0), positions, batch))]


def _depth(node: Node) -> int:
    """Return how many numbers an index has."""
    depth = plain(node.shape(1)[-1])
    if not isinstance(depth, int):
        raise RefusalError(f"{node.operator} {node.name!r}: the last axis of its indices has no constant length")
    return depth


def _indices(node: Node) -> relax.Expr:
    at = node.tensor(1)
    return at if str(at.ty.dtype) == "int64" else node.emit(relax.op.astype(at, "int64"))


def _positions(node: Node, extents: list[Dim]) -> relax.Expr:
    """Return the indices, input 1, as int64 counted from the front.

    Args:
        node: The node.
        extents: Length of the axis that is indexed; of several axes, one for each number of an index.
    """
    at = _indices(node)
    known = node.array(1)
    limits = [plain(d) for d in extents]
    if known is not None and (known >= 0).all() and all(isinstance(d, int) for d in limits):
        greatest = known.reshape(-1, len(limits)).max(axis=0, initial=0)
        if all(int(g) < d for g, d in zip(greatest, limits, strict=True) if isinstance(d, int)):
            return at
    return checked_positions(node, at, extents)


def checked_positions(node: Node, at: relax.Expr, extents: list[Dim]) -> relax.Expr:
    """Return int64 indices [..., D] counted from the front, each checked against its axis while the model runs."""
    call = PositionsOp(f"{node.operator} {node.name!r}: an index is outside its axis")
    shape = relax.ShapeExpr([expression(d) for d in extents])
    name = f"positions{len(node.importer.operators)}"
    return node.call(name, call, [at, shape], relax.TensorType(list(at.ty.shape.values), "int64"))


def _scatter_nd(node: Node) -> list[relax.Expr]:
    dims, depth = node.shape(0), _depth(node)
    return [_scatter(node, _positions(node, dims[:depth]), dims, depth)]


def _scatter_elements(node: Node) -> list[relax.Expr]:
    dims, shape = node.shape(0), node.shape(1)
    axis = node.axis(node.attributes.get("axis", 0), len(dims))
    at = _indices(node)
    # Along the other axes an update stands where it is written: every update gets all its coordinates.
    parts: list[relax.Expr] = []
    for other, length in enumerate(shape):
        part = at
        if other != axis:
            count = node.emit(relax.op.arange(expression(0), expression(length), expression(1), "int64"))
            column = [length if i == other else 1 for i in range(len(shape))]
            part = expand(node, reshape(node, count, column), list(shape))
        parts.append(reshape(node, part, [*shape, 1]))
    where = parts[0] if len(parts) == 1 else node.emit(relax.op.concat(parts, -1))
    return [_scatter(node, checked_positions(node, where, dims), dims, len(dims))]


def _scatter(node: Node, at: relax.Expr, dims: list[Dim], depth: int) -> relax.Expr:
    reduction = node.attributes.get("reduction", "none")
    data, updates = node.tensor(0), node.tensor(2)
    expected = [*list(at.ty.shape.values)[:-1], *dims[depth:]]
    found = node.shape(2)
    if not same_shape(found, expected):
        raise RefusalError(f"{node.operator} {node.name!r}: updates of {found} do not fit; expected {expected}")
    call = ScatterOp(depth, reduction)
    name = f"scatter_{depth}_{reduction}"
    return node.call(name, call, [data, at, updates], relax.TensorType([expression(d) for d in dims], data.ty.dtype))


def _one_hot(node: Node) -> list[relax.Expr]:
    depth, values = _one_hot_depth(node), node.tensor(2)
    indices, dims = node.tensor(0), node.shape(0)
    axis = node.axis(node.attributes.get("axis", -1), len(dims) + 1)
    indices = node.emit(relax.op.astype(indices, "int64"))
    extent = node.importer.written(sizes([depth], ()), "int64")
    negative = node.emit(relax.op.less(indices, relax.const(0, "int64")))
    indices = node.emit(relax.op.where(negative, node.emit(relax.op.add(indices, extent)), indices))
    indices = reshape(node, indices, [*dims[:axis], 1, *dims[axis:]])
    numbers = node.emit(relax.op.arange(expression(0), expression(depth), expression(1), "int64"))
    numbers = reshape(node, numbers, [depth] + [1] * (len(dims) - axis))
    hot = node.emit(relax.op.equal(indices, numbers))
    off, on = (node.emit(relax.op.take(values, constant(np.array(i)), 0, mode="clip")) for i in (0, 1))
    return [node.emit(relax.op.where(hot, on, off))]


def _one_hot_depth(node: Node) -> Dim:
    """Return how many classes there are; exporters give it as any type, also as one of floating point."""
    name = node.inputs[1]
    if name in node.importer.sizes:
        return plain(node.sizes(1).ravel()[0])
    known = node.array(1)
    if known is not None:
        return int(known.ravel()[0])
    given = reshape(node, node.emit(relax.op.astype(node.tensor(1), "int64")), [1])
    return node.importer.measure(given)[0]


CONVERTERS: Mapping[str, Converter] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "Scatter": _scatter_elements,
    "ScatterND": _scatter_nd,
    "OneHot": _one_hot,
}
