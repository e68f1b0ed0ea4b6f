"""Convolutions of 8-bit integers: by a kernel of their own where weights are constant, else as products of windows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from softq.compiler.frontend.converters.convolutions import Axis, axes_of, convolution, long_axes, windows
from softq.compiler.frontend.converters.products import (
    LONGEST,
    integer_product,
    multiplies_integers,
    product_with_one,
    zero_point,
)
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.ops.linear import IntegerConvolutionOp
from softq.compiler.tir.symbolic import expression, plain, product, quotient
from softq.errors import RefusalError

_EXACT = (1 << 24) // (255 * 255)
"""Products of two 8-bit numbers, less their zero points, whose sum is exact in float32."""

_MANY = 8
"""Channels of a group in the result that fill the rows of a product's tile."""


def _conv_integer(node: Node) -> list[relax.Expr]:
    x, weights = node.tensor(0), node.tensor(1)
    batch, channels, *lengths = node.shape(0)
    count, _, *kernel = map(plain, node.shape(1))
    numbers = [size for size in kernel if isinstance(size, int)]
    zeros = zero_point(node, 2, x), zero_point(node, 3, weights)
    if len(numbers) < len(kernel) or not isinstance(count, int) or not multiplies_integers(node, x, weights):
        raise RefusalError(f"{node.operator} {node.name!r} has no kernel for this target, or an open kernel")
    if zeros[0] is None:
        raise RefusalError(f"{node.operator} {node.name!r}: the zero point of its input is no single number")
    axes, groups = axes_of(node, lengths, numbers), int(node.attributes.get("group", 1))
    positions, inner = [axis.positions for axis in axes], plain(quotient([channels, *numbers], [groups]))
    if not isinstance(inner, int) or inner > LONGEST:
        raise RefusalError(f"{node.operator} {node.name!r} of sums of {inner} products, which may leave 32 bits")
    each = None if zeros[1] is not None else reshape(node, node.tensor(3), [count, *[1] * (len(kernel) + 1)])
    if groups > 1 and count // groups < _MANY and len(axes) < 3 and inner <= _EXACT:
        # Exact in floats, where this kernel is.
        wide = [
            node.emit(relax.op.subtract(*(node.emit(relax.op.astype(t, "float32")) for t in pair)))
            for pair in ((x, zeros[0]), (weights, zeros[1] if each is None else each))
        ]
        y = convolution(node, (*wide, constant(np.zeros(count, np.float32))), axes, groups)
        return [node.emit(relax.op.astype(y, "int32"))]
    array, long = node.array(1), long_axes(axes)
    whole = all(isinstance(axis.before, int) for axis in long)
    if array is not None and len(long) < 3 and whole and node.importer.supports(IntegerConvolutionOp, str(array.dtype)):
        return [reshape(node, _own_kernel(node, array, long, groups, zeros), [batch, count, *positions])]
    found = x if all(axis.whole for axis in axes) else windows(node, x, axes, zeros[0])
    dims = [batch, inner, product(positions)] if groups == 1 else [batch, groups, inner, product(positions)]
    columns, rows = reshape(node, found, dims), count // groups
    none = constant(np.zeros(1, str(weights.ty.dtype)))
    y = _sums(
        node, reshape(node, weights, [groups, rows, inner]), columns, [none if zeros[1] is None else zeros[1], zeros[0]]
    )
    if each is not None:
        # The sum of (w - z) x is that of w x less z times that of x.
        ones = constant(np.ones((groups, 1, inner), str(weights.ty.dtype)))
        total = _sums(node, ones, columns, [none, zeros[0]])
        shape = [rows, 1] if groups == 1 else [groups, rows, 1]
        each = reshape(node, node.emit(relax.op.astype(each, "int32")), shape)
        y = node.emit(relax.op.subtract(y, node.emit(relax.op.multiply(each, total))))
    return [reshape(node, y, [batch, count, *positions])]


def _own_kernel(
    node: Node, weights: NDArray[Any], axes: Sequence[Axis], groups: int, zeros: tuple[Any, Any]
) -> relax.Expr:
    """Return the convolution by constant kernels, of images whose axes are these and perhaps others of one element."""
    x, (batch, channels, *lengths), count = node.tensor(0), node.shape(0), weights.shape[0]
    if all(axis.whole and axis.stride == 1 for axis in axes):
        axes = [Axis(product(lengths), 1, 1, 1, 0, 0)]  # One long line fills vectors.
    rows, columns = both = [*[Axis(1, 1, 1, 1, 0, 0)] * (2 - len(axes)), *axes]
    x = reshape(node, x, [batch, channels, *(axis.length for axis in both)])
    kernel = np.ascontiguousarray(weights.reshape(count, -1, rows.kernel, columns.kernel))
    known = node.array(3) if node.has(3) else np.zeros(1, np.int32)
    if known is not None:
        each = constant(np.broadcast_to(known.ravel().astype(np.int32), [count]))
    else:
        each = reshape(node, node.tensor(3), [count]) if zeros[1] is None else zeros[1]
        each = node.emit(relax.op.broadcast_to(node.emit(relax.op.astype(each, "int32")), [count]))
    call = IntegerConvolutionOp(
        groups,
        (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        (int(plain(rows.before)), int(plain(columns.before))),
    )
    shape = [expression(d) for d in (batch, count, rows.positions, columns.positions)]
    name = "integer_convolution_" + re.sub(r"\W+", "_", str(call))
    return node.call(name, call, [x, constant(kernel), each, zeros[0]], relax.TensorType(shape, "int32"))


def _sums(node: Node, left: relax.Expr, columns: relax.Expr, zeros: list[relax.Expr]) -> relax.Expr:
    """Return the products of [groups, M, K] with [batch, (groups,) K, N], less their zero points."""
    groups, *matrix = node.importer.dims(left, node.name)
    if len(node.importer.dims(columns, node.name)) == 3:
        return product_with_one(node, reshape(node, left, matrix), columns, zeros)
    return integer_product(node, reshape(node, left, [1, groups, *matrix]), columns, zeros)


CONVERTERS: Mapping[str, Converter] = {"ConvInteger": _conv_integer}
