"""Products of matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.frontend.broadcasting import broadcast_shape, expand
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.multiply_words import DOMAIN, OPERATOR
from softq.compiler.ops.linear import MatMulOp
from softq.compiler.tir.symbolic import equal, expression, product, size
from softq.errors import RefusalError


def _matmul(node: Node) -> list[relax.Expr]:
    b, transposed = _right(node)
    return [matmul(node, node.tensor(0), b, transposed)]


def _right(node: Node) -> tuple[relax.Expr, bool]:
    """Return the right operand, and whether it is to be transposed.

    It is packed anyway, and packing reads it in either order: its last two axes need no transposition.
    """
    name, order = node.importer.transposes.get(node.inputs[1], ("", []))
    if not order or order[-1] == len(order) - 1:
        return node.tensor(1), False
    order = [*order[:-2], order[-1], order[-2]]
    b = node.importer.tensor(name)
    if order != list(range(len(order))):
        b = node.emit(relax.op.permute_dims(b, order))
    return b, True


def _matmul_integer(node: Node) -> list[relax.Expr] | None:
    (b, transposed), a = _right(node), node.tensor(0)
    points = [zero_point(node, i, like) for i, like in ((2, a), (3, b))]
    # A zero point for each row or column stays with TVM.
    if any(point is None for point in points) or not multiplies_integers(node, a, b):
        return None
    inner = node.importer.dims(a, node.name)[-1]
    why = f"{node.operator} {node.name} of rows so long that their sums may leave 32 bits"
    node.require(Limit(size(inner), 0, LONGEST, why))
    zeros = [point for point in points if point is not None]
    return [integer_product(node, a, b, zeros, transposed)]


def multiplies_integers(node: Node, a: relax.Expr, b: relax.Expr) -> bool:
    """Say whether there is a kernel for the product of two tensors of integers."""
    types = {str(a.ty.dtype), str(b.ty.dtype)}
    return types <= {"int8", "uint8"} and all(node.importer.supports(MatMulOp, dtype) for dtype in types)


def zero_point(node: Node, position: int, like: relax.Expr) -> relax.Expr | None:
    """Return an input that is a zero point, [1], by default 0; None if it is one for each row or column."""
    if not node.has(position):
        return constant(np.zeros(1, str(like.ty.dtype)))
    known = node.array(position)
    if known is not None and known.size and (known == known.ravel()[0]).all():
        return constant(known.ravel()[:1])
    return reshape(node, node.tensor(position), [1]) if product(node.shape(position)) == 1 else None


def integer_product(
    node: Node, a: relax.Expr, b: relax.Expr, zeros: list[relax.Expr], transposed: bool = False
) -> relax.Expr:
    """Return NumPy's matmul of two tensors of 8-bit integers less their zero points, as int32."""
    return _product(node, MatMulOp(transposed, integers=True), a, b, zeros, "int32")


def _matmul_words(node: Node) -> list[relax.Expr]:
    """Return a product of int16 and bytes as float32; where there is no kernel for it, a product of floats."""
    zero = node.array(2) if node.has(2) else None
    types = [str(node.tensor(i).ty.dtype) for i in range(2)]
    if zero is None or zero.size != 1 or types[0] != "int16" or types[1] != str(zero.dtype) or zero.dtype.itemsize != 1:
        raise RefusalError(f"{node.operator} {node.name!r} takes int16, bytes and a constant of theirs, not {types}")
    a, (b, transposed) = node.tensor(0), _right(node)
    if node.importer.supports(MatMulOp, "int16"):
        zeros = [constant(np.zeros(1, np.int16)), constant(zero)]
        return [_product(node, MatMulOp(transposed, integers=True), a, b, zeros, "float32")]
    less = node.emit(relax.op.subtract(node.emit(relax.op.astype(b, "int32")), constant(zero.astype(np.int32))))
    floats = [node.emit(relax.op.astype(x, "float32")) for x in (a, less)]
    return [matmul(node, *floats, transposed)]


LONGEST = ((1 << 31) - 1) // (255 * 255)
"""Products of two 8-bit numbers, less their zero points, whose sum fits 32 bits."""


def _transpose(node: Node) -> list[relax.Expr]:
    rank = len(node.shape(0))
    order = list(node.attributes.get("perm", reversed(range(rank))))
    if rank >= 2:
        node.importer.transposes[node.outputs[0]] = (node.inputs[0], order)
    return [node.emit(relax.op.permute_dims(node.tensor(0), order))]


def matmul(node: Node, a: relax.Expr, b: relax.Expr, transposed: bool = False) -> relax.Expr:
    """Return NumPy's matmul of two tensors of any ranks; `transposed` stands for the last two axes of the right one."""
    dtype = str(a.ty.dtype)
    if dtype != str(b.ty.dtype) or "int" in dtype or not node.importer.supports(MatMulOp, dtype):
        if transposed:
            axes = range(len(node.importer.dims(b, node.name)))
            b = node.emit(relax.op.permute_dims(b, [*axes[:-2], axes[-1], axes[-2]]))
        return node.emit(relax.op.matmul(a, b))
    return _product(node, MatMulOp(transposed), a, b, [], dtype)


def _product(
    node: Node, operator: MatMulOp, a: relax.Expr, b: relax.Expr, others: list[relax.Expr], dtype: str
) -> relax.Expr:
    """Return NumPy's matmul of two tensors by a kernel of our own."""
    transposed, name = operator.transposed, "matmul" + "_integer" * operator.integers + "_t" * operator.transposed
    left, right = node.importer.dims(a, node.name), node.importer.dims(b, node.name)
    vectors = len(left) == 1, len(right) == 1
    if vectors[0]:
        left = [1, *left]
    if vectors[1]:
        right = [right[0], 1]
        b = reshape(node, b, right)
    inner, columns = (right[-1], right[-2]) if transposed else (right[-2], right[-1])
    if not equal(left[-1], inner):
        because = f"{node.operator} {node.name!r}: inner dimensions {left[-1]} and {inner} differ"
        if isinstance(left[-1], int) and isinstance(inner, int):
            raise RefusalError(because)
        # Sizes of other names, or of other formulas, may well be the same in every run.
        node.require(Limit(size(expression(left[-1]) - expression(inner)), 0, 0, because))
    if len(right) == 2:
        # One matrix for all: the batch axes of the left operand are rows too.
        lead, shape = left[:-2], [product(left[:-1]), columns]
        a = reshape(node, a, [shape[0], left[-1]])
    else:
        lead = broadcast_shape(node, left[:-2], right[:-2])
        shape = [product(lead), left[-2], columns]
        a = expand(node, reshape(node, a, left), [*lead, *left[-2:]])
        a = reshape(node, a, [shape[0], *left[-2:]])
        b = expand(node, b, [*lead, *right[-2:]])
        b = reshape(node, b, [shape[0], *right[-2:]])
    out = node.call(name, operator, [a, b, *others], relax.TensorType([expression(d) for d in shape], dtype))
    result = [*lead, *([] if vectors[0] else [left[-2]]), *([] if vectors[1] else [columns])]
    return reshape(node, out, result)


def product_with_one(
    node: Node, one: relax.Expr, many: relax.Expr, zeros: list[relax.Expr] | None = None
) -> relax.Expr:
    """Return the products of one matrix [M, K] with each of [batch, K, N]; of integers if zero points are given."""
    rows, (batch, _, columns) = node.importer.dims(one, node.name)[0], node.importer.dims(many, node.name)
    dtype, name = ("float32", "matmul") if zeros is None else ("int32", "matmul_integer")
    shape = relax.TensorType([expression(d) for d in (batch, rows, columns)], dtype)
    return node.call(name, MatMulOp(False, integers=zeros is not None), [one, many, *(zeros or [])], shape)


def _scaled(node: Node, x: relax.Expr, factor: float) -> relax.Expr:
    return x if factor == 1.0 else node.emit(relax.op.multiply(x, constant(np.array(factor, str(x.ty.dtype)))))


def _gemm(node: Node) -> list[relax.Expr]:
    a = node.tensor(0)
    if node.attributes.get("transA", 0):
        a = node.emit(relax.op.permute_dims(a))
    y = matmul(node, a, node.tensor(1), bool(node.attributes.get("transB", 0)))
    y = _scaled(node, y, node.attributes.get("alpha", 1.0))
    if node.has(2):
        y = node.emit(relax.op.add(y, _scaled(node, node.tensor(2), node.attributes.get("beta", 1.0))))
    return [y]


CONVERTERS: Mapping[str, Converter] = {
    "MatMul": _matmul,
    "Transpose": _transpose,
    "MatMulInteger": _matmul_integer,
    f"{DOMAIN}::{OPERATOR}": _matmul_words,
    "Gemm": _gemm,
}
