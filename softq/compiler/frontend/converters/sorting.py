"""Operators that sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.converters.selections import chosen, chosen_axis, compute, refuse_without, taken
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.ops.data_movement import CumulativeOp, ScatterOp
from softq.compiler.ops.sorting import SortOp
from softq.compiler.tir.symbolic import Dim, expression, product, simplified, size
from softq.errors import RefusalError


def order(node: Node, x: relax.Expr, descending: bool = False) -> relax.Expr:
    """Return the order of the entries of a tensor [lines, length, width], int64 [lines, length]; see `SortOp`."""
    dtype, dims = str(x.ty.dtype), list(x.ty.shape.values)
    refuse_without(node, SortOp, dtype)
    name = f"sort {'descending' if descending else 'ascending'}"
    return node.call(name, SortOp(descending), [x], relax.TensorType(dims[:2], "int64"))


def permute(node: Node, x: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """Return the tensor with its axes in this order, itself if they are."""
    return x if list(axes) == list(range(len(axes))) else node.emit(relax.op.permute_dims(x, list(axes)))


def _top_k(node: Node) -> list[relax.Expr]:
    dims = node.shape(0)
    axis = node.axis(node.attributes.get("axis", -1), len(dims))
    rest = [i for i in range(len(dims)) if i != axis]
    others, length = [dims[i] for i in rest], dims[axis]
    (count,) = node.sizes(1).ravel().tolist()
    _require_at_most(node, count, length)
    lines = product(others)
    x = reshape(node, permute(node, node.tensor(0), [*rest, axis]), [lines, length, 1])
    at = order(node, x, bool(node.attributes.get("largest", 1)))

    def first(at: Any, count: Any) -> Any:
        return te.compute([at.shape[0], count], lambda line, i: at[line, i], name="first")

    def values(x: Any, at: Any, count: Any) -> Any:
        return te.compute([at.shape[0], count], lambda line, i: x[line, at[line, i], 0], name="values")

    back = [*range(axis), len(rest), *range(axis, len(rest))]
    return [
        permute(node, reshape(node, result, [*others, count]), back)
        for result in (
            compute(node, "values", values, x, at, expression(count)),
            compute(node, "first", first, at, expression(count)),
        )
    ]


def _require_at_most(node: Node, count: Dim, length: Dim) -> None:
    spare = simplified(expression(length) - expression(count))
    if not isinstance(spare, int):
        node.require(Limit(size(spare), 0, 2**40, f"TopK {node.name} asks for more elements than its axis has"))
    elif spare < 0:
        raise RefusalError(f"TopK {node.name!r} asks for {count} elements of {length}")


def _unique(node: Node) -> list[relax.Expr]:
    x, dims, axis = chosen_axis(node)
    length, rest = dims[axis], [i for i in range(len(dims)) if i != axis]
    entries = permute(node, x, [axis, *rest])
    if str(x.ty.dtype) == "bool":
        entries = node.emit(relax.op.astype(entries, "uint8"))
    entries = reshape(node, entries, [1, length, product(dims[i] for i in rest)])
    at = reshape(node, order(node, entries), [length])
    begins = compute(node, "begins", _begins, entries, at)
    starts = chosen(node, begins)
    number = starts.ty.shape.values[0]
    firsts = taken(node, at, starts)
    counts = compute(node, "counts", _counts, starts, expression(length))
    inverse = _scattered(node, at, _runs(node, begins))
    if not node.attributes.get("sorted", 1):
        # Each value has its number in the order of first positions.
        ranks = reshape(node, order(node, reshape(node, firsts, [1, number, 1])), [number])
        firsts, counts = (taken(node, v, ranks) for v in (firsts, counts))
        numbers = node.emit(relax.op.arange(expression(0), number, expression(1), "int64"))
        inverse = taken(node, _scattered(node, ranks, numbers), inverse)
    return [taken(node, x, firsts, axis), firsts, inverse, counts]


def _begins(entries: Any, at: Any) -> Any:
    """Return which of the sorted entries differ from the one before them."""
    k = te.reduce_axis((0, entries.shape[2]), "k")

    def differs(i: Any) -> Any:
        a, b = entries[0, at[i], k], entries[0, at[tirx.max(i - 1, 0)], k]
        unequal = a != b
        if str(entries.dtype).startswith("float"):
            unequal = tirx.And(unequal, tirx.Not(tirx.And(tirx.isnan(a), tirx.isnan(b))))
        return te.max(unequal.astype("int32"), axis=k)

    differing = te.compute(at.shape, differs, name="differing")
    return te.compute(at.shape, lambda i: tirx.Or(i == 0, differing[i] > 0), name="begins")


def _counts(starts: Any, length: Any) -> Any:
    last = starts.shape[0] - 1
    return te.compute(
        starts.shape,
        lambda i: tirx.Select(i == last, length, starts[tirx.min(i + 1, last)]) - starts[i],
        name="counts",
    )


def _runs(node: Node, begins: relax.Expr) -> relax.Expr:
    """Return the number of the run that each entry is in."""
    dims = list(begins.ty.shape.values)
    ones = reshape(node, node.emit(relax.op.astype(begins, "int64")), [1, *dims, 1])
    runs = node.call("cumsum_00", CumulativeOp(exclusive=False, reverse=False), [ones], ones.ty)
    return node.emit(relax.op.subtract(reshape(node, runs, dims), relax.const(1, "int64")))


def _scattered(node: Node, at: relax.Expr, values: relax.Expr) -> relax.Expr:
    """Return the values, each at its position; both are int64 [n], and positions are all different."""
    dims = list(at.ty.shape.values)
    data = node.emit(relax.op.zeros(relax.ShapeExpr(dims), "int64"))
    return node.call("scatter_1_none", ScatterOp(1, "none"), [data, reshape(node, at, [*dims, 1]), values], values.ty)


def _hardmax(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    axis = node.axis(node.attributes.get("axis", -1), len(node.shape(0)))
    first = node.emit(relax.op.argmax(x, axis, keepdims=True))

    def mark(x: Any, first: Any) -> Any:
        def element(*at: Any) -> Any:
            here = first[(*at[:axis], 0, *at[axis + 1 :])] == at[axis].astype("int64")
            return tirx.Select(here, tirx.const(1, x.dtype), tirx.const(0, x.dtype))

        return te.compute(x.shape, element, name="hardmax")

    return [compute(node, "hardmax", mark, x, first)]


CONVERTERS: Mapping[str, Converter] = {"Hardmax": _hardmax, "TopK": _top_k, "Unique": _unique}
