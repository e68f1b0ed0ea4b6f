"""Operators whose result is their input in another shape."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.broadcasting import broadcast_shape, expand
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.parameters import (
    axis_flags,
    count_of,
    emit,
    flat_numbers,
    integer,
    known_axes,
    table,
    total,
)
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, product, quotient, same_shape, simplified, size
from softq.errors import RefusalError


def reshape(node: Node, value: relax.Expr, shape: list[Dim]) -> relax.Expr:
    """Return the value with these dimensions; itself, or what it shows in another shape, if that has them.

    A view between two operators keeps them from being one kernel.
    """
    dims = node.importer.dims(value, node.name)
    for shown in _views(node, value):
        if same_shape(node.importer.dims(shown, node.name), shape):
            return shown
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


def _views(node: Node, value: relax.Expr) -> Iterator[relax.Expr]:
    """Yield a value and those that it shows in another shape."""
    while True:
        yield value
        binding = node.importer.bb.lookup_binding(value) if isinstance(value, relax.Var) else None
        if not isinstance(binding, tvm.ir.Call) or getattr(binding.op, "name", "") != "relax.reshape":
            return
        value = binding.args[0]


def _reshape(node: Node) -> list[relax.Expr]:
    if node.inputs[1] in node.importer.sizes:
        shape = _target(node, node.shape(0), list(node.sizes(1).ravel()))
    else:
        shape = _asked(node, node.shape(0), flat_numbers(node, 1))
    return [reshape(node, node.tensor(0), shape)]


def _target(node: Node, dims: list[Dim], wanted: list[Dim]) -> list[Dim]:
    """Return the shape that Reshape asks for, with 0 and -1 resolved."""
    if not node.attributes.get("allowzero", 0):
        wanted = [dims[i] if isinstance(d, int) and d == 0 else d for i, d in enumerate(wanted)]
    open_axes = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == -1]
    if open_axes:
        rest = [d for i, d in enumerate(wanted) if i not in open_axes]
        wanted[open_axes[0]] = quotient(dims, rest)
    return wanted


def _asked(node: Node, dims: list[Dim], wanted: relax.Expr) -> list[Dim]:
    """Return the same for a shape that the run decides."""
    count = count_of(node, wanted)
    if not count:
        return []

    def length(given: Any, there: Any, axis: int) -> Any:
        as_it_is = not node.attributes.get("allowzero", 0) and axis < len(dims)
        return tirx.Select(given[axis] == 0, there[axis], given[axis]) if as_it_is else given[axis]

    def resolved(axis: int) -> Callable[[Any], Any]:
        def element(given: Any, there: Any) -> Any:
            rest = integer(1)
            for other in range(count):
                if other != axis:
                    rest = rest * length(given, there, other)
            left = tirx.truncdiv(expression(product(there)), tirx.Select(rest == 0, integer(1), rest))
            return tirx.Select(given[axis] == -1, left, length(given, there, axis))

        return element

    lengths = table(node, "lengths", [resolved(axis) for axis in range(count)], wanted, dims)
    return list(node.importer.measure(lengths))


def _flatten(node: Node) -> list[relax.Expr]:
    dims, axis = node.shape(0), node.attributes.get("axis", 1)
    axis += len(dims) if axis < 0 else 0
    return [reshape(node, node.tensor(0), [product(dims[:axis]), product(dims[axis:])])]


def _squeeze(node: Node) -> list[relax.Expr]:
    dims = [plain(d) for d in node.shape(0)]
    axes: list[int] | None = [i for i, d in enumerate(dims) if isinstance(d, int) and d == 1]
    if node.has(1) or "axes" in node.attributes:
        axes = known_axes(node)
    else:
        for d in (d for d in dims if not isinstance(d, int)):
            because = f"Squeeze {node.name} without axes would drop an axis that was not 1 when the model was built"
            node.require(Limit(size(d), 2, 2**40, because))
    if axes is None:
        flags = axis_flags(node, flat_numbers(node, 1), len(dims), none_is_all=False)
        return [reshape(node, node.tensor(0), flags.others(node, dims))]
    axes = [node.axis(a, len(dims)) for a in axes]
    return [reshape(node, node.tensor(0), [d for i, d in enumerate(dims) if i not in axes])]


def _unsqueeze(node: Node) -> list[relax.Expr]:
    dims, axes = list(node.shape(0)), known_axes(node)
    if axes is None:
        return [reshape(node, node.tensor(0), _with_ones(node, dims, flat_numbers(node, 1)))]
    rank = len(dims) + len(axes)
    for axis in sorted(node.axis(a, rank) for a in axes):
        dims.insert(axis, 1)
    return [reshape(node, node.tensor(0), dims)]


def _with_ones(node: Node, dims: Sequence[Dim], axes: relax.Expr) -> list[Dim]:
    """Return dimensions with a 1 for each axis of the result that the run decides."""
    rank = len(dims) + count_of(node, axes)
    flags = axis_flags(node, axes, rank, none_is_all=False)

    def length(axis: int) -> Callable[[Any], Any]:
        def element(given: Any, there: Any) -> Any:
            place = axis - total([given[i] for i in range(axis)])
            found = total([tirx.Select(place == i, d, integer(0)) for i, d in enumerate(there)])
            return tirx.Select(given[axis] == 1, integer(1), found)

        return element

    lengths = table(node, "lengths", [length(axis) for axis in range(rank)], flags.flags, dims)
    return list(node.importer.measure(lengths))


def _expand(node: Node) -> list[relax.Expr]:
    dims, wanted = [plain(d) for d in node.shape(0)], [plain(d) for d in node.sizes(1).ravel()]
    return [expand(node, node.tensor(0), broadcast_shape(node, dims, wanted))]


def _tile(node: Node) -> list[relax.Expr] | None:
    if node.opset < 6:
        return None
    dims, repeats = node.shape(0), list(node.sizes(1).ravel())
    if len(repeats) != len(dims):
        raise RefusalError(f"Tile {node.name!r} of {len(dims)} axes has {len(repeats)} repeats")
    shape = [product([d, r]) for d, r in zip(dims, repeats, strict=True)]

    def compute(x: Any, shape: Any) -> Any:
        def element(*at: Any) -> Any:
            places = zip(at, x.shape, shape, strict=True)
            return x[tuple(i if equal(d, whole) else tirx.floormod(i, d) for i, d, whole in places)]

        return te.compute(shape, element, name="tiled")

    return [emit(node, "tiled", compute, node.tensor(0), shape)]


def repeated(node: Node, x: relax.Expr, times: Mapping[int, int]) -> relax.Expr:
    """Return a tensor with each element along some axes repeated, next to each other, so many times."""
    dims = node.importer.dims(x, node.name)
    places = list(itertools.accumulate((1 + (axis in times) for axis in range(len(dims))), initial=0))[:-1]
    parts = [d for axis, dim in enumerate(dims) for d in [dim, *([times[axis]] if axis in times else [])]]

    def compute(values: Any, shape: Any) -> Any:
        return te.compute(shape, lambda *at: values[tuple(at[place] for place in places)], name="repeated")

    made = emit(node, "repeated", compute, x, parts)
    return reshape(node, made, [product([dim, times.get(axis, 1)]) for axis, dim in enumerate(dims)])


def _space_to_depth(node: Node) -> list[relax.Expr]:
    x, size = node.tensor(0), node.attributes["blocksize"]
    batch, channels, height, width = node.shape(0)
    rows, columns = (quotient([d], [size]) for d in (height, width))
    parts = reshape(node, x, [batch, channels, rows, size, columns, size])
    # Which changes faster along the channels of the result: the channel, or the place in a block.
    order = [0, 1, 3, 5, 2, 4] if node.attributes.get("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    moved = node.emit(relax.op.permute_dims(parts, order))
    return [reshape(node, moved, [batch, product([channels, size, size]), rows, columns])]


CONVERTERS: Mapping[str, Converter] = {
    "SpaceToDepth": _space_to_depth,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Tile": _tile,
    "Identity": lambda node: [node.tensor(0)],
}
