"""Operators that pick elements by data: how many there are is measured while the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.ops.sorting import ChosenOp
from softq.compiler.tir.symbolic import Dim, expression, plain, product
from softq.errors import RefusalError


def refuse_without(node: Node, operator: Any, dtype: str) -> None:
    """Refuse a node whose kernel the backend has not."""
    if not node.importer.supports(operator, dtype):
        raise RefusalError(f"{node.operator} {node.name!r} of {dtype} has no kernel for this target")


def chosen(node: Node, mask: relax.Expr) -> relax.Expr:
    """Return where a bool tensor [N] holds, as int64 [n] with a dimension that is measured."""
    refuse_without(node, ChosenOp, "bool")

    def count(mask: Any) -> Any:
        k = te.reduce_axis((0, mask.shape[0]), "k")
        return te.compute((1,), lambda _: te.sum(mask[k].astype("int64"), axis=k), name="count")

    (number,) = node.importer.measure(compute(node, "count", count, mask))
    return node.call("chosen", ChosenOp(), [mask, relax.ShapeExpr([number])], relax.TensorType([number], "int64"))


def compute(node: Node, name: str, function: Any, *given: relax.Expr | list[Any]) -> relax.Expr:
    """Return what a function of TE's tensors gives; a list of sizes that it takes comes in its own variables."""
    return node.importer.bb.emit_te(function, *given, primfunc_name_hint=name)


def taken(node: Node, x: relax.Expr, at: relax.Expr, axis: int = 0) -> relax.Expr:
    """Return the parts of a tensor at positions along an axis, which are within it."""
    return node.emit(relax.op.take(x, at, axis, mode="clip"))


def along(place: Any, dims: Sequence[Dim], axis: int) -> Any:
    """Return the coordinate along an axis of a place in a tensor's flat memory."""
    behind = expression(product(dims[axis + 1 :]))
    quotient = place if plain(behind) == 1 else tirx.floordiv(place, behind)
    return quotient if axis == 0 else tirx.floormod(quotient, expression(dims[axis]))


def _non_zero(node: Node) -> list[relax.Expr]:
    x, dims = node.tensor(0), node.shape(0)
    if not dims:
        raise RefusalError(f"NonZero {node.name!r} of a tensor without axes: ONNX does not say what its positions are")
    flat = reshape(node, x, [product(dims)])
    if str(x.ty.dtype) != "bool":
        flat = node.emit(relax.op.not_equal(flat, relax.const(0, str(x.ty.dtype))))
    at = chosen(node, flat)

    def coordinates(at: Any, dims: Any) -> Any:
        def element(axis: Any, i: Any) -> Any:
            value = along(at[i], dims, len(dims) - 1)
            for other in reversed(range(len(dims) - 1)):
                value = tirx.Select(axis == other, along(at[i], dims, other), value)
            return value

        return te.compute([len(dims), at.shape[0]], element, name="coordinates")

    return [compute(node, "coordinates", coordinates, at, dims)]


def chosen_axis(node: Node) -> tuple[relax.Expr, list[Dim], int]:
    """Return the first input, its dimensions and the axis that the node names; without one, all elements in a row."""
    x, dims = node.tensor(0), node.shape(0)
    if "axis" in node.attributes:
        return x, dims, node.axis(node.attributes["axis"], len(dims))
    flat: list[Dim] = [product(dims)]
    return reshape(node, x, flat), flat, 0


def _compress(node: Node) -> list[relax.Expr]:
    x, dims, axis = chosen_axis(node)

    def within(condition: Any, length: Any) -> Any:
        # A condition may be longer than the axis, and what is behind a shorter one is left out.
        return te.compute(condition.shape, lambda i: tirx.And(condition[i], i < length), name="within")

    at = chosen(node, compute(node, "within", within, node.tensor(1), expression(dims[axis])))
    return [taken(node, x, at, axis)]


CONVERTERS: Mapping[str, Converter] = {"NonZero": _non_zero, "Compress": _compress}
