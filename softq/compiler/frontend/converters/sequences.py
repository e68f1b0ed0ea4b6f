"""Numbers that follow a rule, and sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.parameters import emit, flat_numbers, integer, known_numbers, length_between, one_if, table
from softq.compiler.frontend.shape_folding import sizes
from softq.compiler.ops.data_movement import CumulativeOp
from softq.compiler.tir.symbolic import Dim, expression, product, simplified
from softq.errors import RefusalError


def _range(node: Node) -> list[relax.Expr]:
    known = node.importer.sizes
    step = known_numbers(node, 2) if node.inputs[2] in known else None
    if step is None or not all(name in known for name in node.inputs):
        return [_counted(node)]
    start, limit, delta = (sizes(node.sizes(i).ravel()[0], ()).item() for i in range(3))
    if delta == 0:
        raise RefusalError(f"Range {node.name!r}: its step is 0")
    dtype = node.importer.tensor(node.inputs[0]).ty.dtype
    low, high = (start, limit) if delta > 0 else (limit, start)
    there = expression(length_between(node, low, high))
    limit = simplified(expression(start) + (there if delta > 0 else -there))
    values = relax.op.arange(expression(start), expression(limit), expression(delta), "int64")
    result = node.emit(values)
    return [result if str(dtype) == "int64" else node.emit(relax.op.astype(result, dtype))]


def _counted(node: Node) -> relax.Expr:
    """Return a range whose length the run decides; a step of 0 ends it."""
    given = [reshape(node, node.tensor(i), [1]) for i in range(3)]
    dtype = str(given[0].ty.dtype)
    if not dtype.startswith(("int", "float")):
        raise RefusalError(f"Range {node.name!r} of {dtype} has no kernel")

    def count(start: Any, limit: Any, delta: Any) -> Any:
        if dtype.startswith("float"):
            rounds = tirx.ceil((limit[0] - start[0]).astype("float64") / delta[0].astype("float64")).astype("int64")
        else:
            span, step = (limit[0] - start[0]).astype("int64"), delta[0].astype("int64")
            away = tirx.Select(step > 0, span, -span)
            # A step of 0 is answered below, and nothing may divide by it.
            rounds = tirx.truncdiv(away - 1, tirx.max(tirx.Select(step > 0, step, -step), 1)) + 1
            rounds = tirx.Select(away > 0, rounds, integer(0))
        zero = delta[0] == tirx.const(0, dtype)
        return tirx.Select(zero, integer(-1), tirx.max(rounds, integer(0)))

    (length,) = node.importer.measure(table(node, "length", [count], *given))

    def compute(start: Any, delta: Any, shape: Any) -> Any:
        return te.compute(shape, lambda i: start[0] + i.astype(dtype) * delta[0], name="numbers")

    return emit(node, "numbers", compute, given[0], given[2], [length])


def _constant_of_shape(node: Node) -> list[relax.Expr]:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    shape = [expression(d) for d in node.sizes(0).ravel()]
    return [node.emit(relax.op.full(shape, constant(value.reshape(())), str(value.dtype)))]


def _cumulative(multiplies: bool) -> Converter:
    def convert(node: Node) -> list[relax.Expr]:
        dims, known = node.shape(0), known_numbers(node, 1)
        if known is None:
            flat = _around(node, dims)
        else:
            axis = node.axis(int(known[0]), len(dims))
            flat = [product(dims[:axis]), dims[axis], product(dims[axis + 1 :])]
        attributes = [bool(node.attributes.get(name, 0)) for name in ("exclusive", "reverse")]
        call = CumulativeOp(*attributes, multiplies)
        x = reshape(node, node.tensor(0), flat)
        name = "cumprod" if multiplies else "cumsum"
        name = f"{name}_{int(call.exclusive)}{int(call.reverse)}"
        done = node.call(name, call, [x], relax.TensorType([expression(d) for d in flat], str(x.ty.dtype)))
        return [reshape(node, done, dims)]

    return convert


def _around(node: Node, dims: list[Dim]) -> list[Dim]:
    """Return how many elements are before an axis that the run decides, along it, and behind; others end the run."""
    rank = len(dims)

    def part(where: int) -> Callable[[Any], Any]:
        def element(given: Any, lengths: Any) -> Any:
            axis = given[0] + rank * one_if(given[0] < 0)
            result = integer(1)
            for i, length in enumerate(lengths):
                there = (axis > i, axis == i, axis < i)[where]
                result = result * tirx.Select(there, length, integer(1))
            return tirx.Select(tirx.And(axis >= 0, axis < rank), result, integer(-1))

        return element

    lengths = table(node, "around", [part(where) for where in range(3)], flat_numbers(node, 1), dims)
    return list(node.importer.measure(lengths))


def _trilu(node: Node) -> list[relax.Expr]:
    x, upper = node.tensor(0), bool(node.attributes.get("upper", 1))
    dims, given = node.shape(0), [flat_numbers(node, 1)] if node.has(1) else []
    if len(dims) < 2:
        raise RefusalError(f"Trilu {node.name!r} of {len(dims)} axes")

    def compute(values: Any, *diagonal: Any) -> Any:
        first = diagonal[0][0] if diagonal else integer(0)

        def element(*at: Any) -> Any:
            row, column = (i.astype("int64") for i in at[-2:])
            kept = column - row >= first if upper else column - row <= first
            return tirx.Select(kept, values[at], tirx.const(0, values.dtype))

        return te.compute(values.shape, element, name="triangle")

    return [emit(node, "triangle", compute, x, *given)]


def _eye_like(node: Node) -> list[relax.Expr]:
    dims, dtype = node.shape(0), str(node.tensor(0).ty.dtype)
    if "dtype" in node.attributes:
        dtype = str(np.dtype(tensor_dtype_to_np_dtype(node.attributes["dtype"])))
    if len(dims) != 2:
        raise RefusalError(f"EyeLike {node.name!r} of {len(dims)} axes; it has 2")
    rows, columns = (node.emit(relax.op.arange(expression(0), expression(d), expression(1), "int64")) for d in dims)
    first = relax.const(int(node.attributes.get("k", 0)), "int64")
    rows = reshape(node, node.emit(relax.op.add(rows, first)), [dims[0], 1])
    hot = node.emit(relax.op.equal(rows, reshape(node, columns, [1, dims[1]])))
    return [hot if dtype == "bool" else node.emit(relax.op.astype(hot, dtype))]


CONVERTERS: Mapping[str, Converter] = {
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumulative(False),
    "CumProd": _cumulative(True),
    "Trilu": _trilu,
    "EyeLike": _eye_like,
}
