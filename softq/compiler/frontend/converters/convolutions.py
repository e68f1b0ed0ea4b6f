"""Convolutions as products of matrices: the kernels' matrix and, for each image, its windows as columns.

The windows are gathered into a tensor of their own, [batch, channels x kernel, positions]; TVM's loops over the seven
axes take tens of times as long. Groups are products of their own. Few channels and long rows have another kernel.

Source of the form: K. Chellapilla, S. Puri, P. Simard, "High Performance Convolutional Neural Networks for Document
Processing", IWFHR 2006.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.padding import check_auto_pad, padded, same_pads, same_span, same_windows
from softq.compiler.frontend.converters.products import matmul, product_with_one
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.ops.linear import ConvolutionOp
from softq.compiler.tir.symbolic import Dim, expression, plain, product, quotient, simplified


@dataclass(frozen=True)
class Axis:
    """An axis of images: its length, and how the windows of a convolution lie on it."""

    length: Dim
    kernel: int
    stride: int
    dilation: int
    before: Dim
    after: Dim
    same: bool = False  # Whether the pads are such that there is a window for every `stride` elements.

    @property
    def positions(self) -> Dim:
        """Number of windows."""
        if self.same:
            return same_windows(self.length, self.stride)
        reach = (self.kernel - 1) * self.dilation + 1
        span = expression(self.length) + (expression(self.before) + expression(self.after) - reach)
        return simplified(tirx.floordiv(span, expression(self.stride)) + 1)

    @property
    def whole(self) -> bool:
        """Whether windows are the elements themselves."""
        return (self.kernel, self.stride, self.before, self.after) == (1, 1, 0, 0)

    @property
    def beyond(self) -> bool:
        """Whether there may be more windows than the elements of a stride have places for."""
        if self.same:
            return False
        return not (isinstance(self.before, int) and isinstance(self.after, int)) or (
            self.before + self.after > (self.kernel - 1) * self.dilation
        )


def _pads(length: Dim) -> bool:
    """Say whether there may be elements that stand before or behind an axis."""
    return not isinstance(length, int) or length != 0


def axes_of(node: Node, lengths: Sequence[Dim], kernel: Sequence[int]) -> list[Axis]:
    """Return the axes of images of these lengths, from the attributes of a convolution with a kernel of these."""
    rank = len(lengths)
    strides = list(node.attributes.get("strides") or [1] * rank)
    dilations = list(node.attributes.get("dilations") or [1] * rank)
    pads = list(node.attributes.get("pads") or [0] * (2 * rank))
    auto = str(node.attributes.get("auto_pad", "NOTSET"))
    axes: list[Axis] = []
    for i, (length, size, stride, dilation) in enumerate(zip(lengths, kernel, strides, dilations, strict=True)):
        before, after = (pads[i], pads[rank + i]) if auto == "NOTSET" else (0, 0)
        length = plain(length)
        same = auto.startswith("SAME")
        if same:
            before, after = same_pads(length, size, stride, dilation, auto == "SAME_UPPER")
        axes.append(Axis(length, size, stride, dilation, before, after, same))
    return axes


def windows(node: Node, x: relax.Expr, axes: Sequence[Axis], *around: relax.Expr) -> relax.Expr:
    """Return the windows, [batch, channels, kernel..., positions...]; `around` it stands a number, [1], or zeros."""
    positions, rank = [axis.positions for axis in axes], len(axes)

    def compute(tensor: Any, *around: Any) -> Any:
        shape = [*tensor.shape[:2], *(axis.kernel for axis in axes), *map(expression, positions)]

        def element(*index: Any) -> Any:
            batch, channel, within, window = *index[:2], index[2 : 2 + rank], index[2 + rank :]
            at = [
                w * axis.stride + k * axis.dilation - expression(axis.before)
                for axis, k, w in zip(axes, within, window, strict=True)
            ]
            inside = [
                check
                for axis, i in zip(axes, at, strict=True)
                for check in [i >= 0] * _pads(axis.before) + [i < axis.length] * _pads(axis.after)
            ]
            value = tensor[(batch, channel, *at)]
            other = around[0][0] if around else tirx.const(0, tensor.dtype)
            return tirx.if_then_else(tirx.all(*inside), value, other) if inside else value

        return te.compute(shape, element, name="windows")

    return node.importer.bb.emit_te(compute, x, *around, primfunc_name_hint="windows")


def long_axes(axes: Sequence[Axis]) -> Sequence[Axis]:
    """Return the axes without those of a single element, but for one."""
    return [axis for axis in axes if not (axis.length == 1 and axis.whole)] or axes[-1:]


def _conv(node: Node) -> list[relax.Expr] | None:
    x, weights = node.tensor(0), node.tensor(1)
    batch, channels, *lengths = node.shape(0)
    count, _, *kernel = map(plain, node.shape(1))
    numbers = [size for size in kernel if isinstance(size, int)]
    types = {str(x.ty.dtype), str(weights.ty.dtype)}
    if types != {"float32"} or len(numbers) < len(kernel):
        check_auto_pad(node)
        return None
    axes, groups = axes_of(node, lengths, numbers), int(node.attributes.get("group", 1))
    positions = [axis.positions for axis in axes]
    if any(isinstance(p, int) and p < 1 for p in positions) or not isinstance(count, int):
        check_auto_pad(node)
        return None
    weight, (line, *others) = node.array(1), long_axes(axes)
    if groups == 1 and weight is not None and not others and isinstance(line.positions, int) and line.positions < _WIDE:
        inner = product([channels, line.kernel])
        if line.kernel == 1 or (count > _FEW and not (isinstance(inner, int) and inner <= _SHORT)):
            return [_by_rows(node, weight, axes)]
    if len(axes) < 3 and node.importer.supports(ConvolutionOp, "float32"):
        bias = node.tensor(2) if node.has(2) else constant(np.zeros(count, np.float32))
        return [convolution(node, (x, weights, bias), axes, groups)]
    inner = product([channels, *numbers])
    gathered = x if all(axis.whole for axis in axes) else windows(node, x, axes)
    if groups == 1:
        columns = reshape(node, gathered, [batch, inner, product(positions)])
        y = product_with_one(node, reshape(node, weights, [count, inner]), columns)
    else:
        inner = quotient([inner], [groups])
        columns = reshape(node, gathered, [batch, groups, inner, product(positions)])
        y = matmul(node, reshape(node, weights, [1, groups, count // groups, inner]), columns)
    y = reshape(node, y, [batch, count, *positions])
    if node.has(2):
        y = node.emit(relax.op.add(y, reshape(node, node.tensor(2), [count, *[1] * len(axes)])))
    return [y]


def _by_rows(node: Node, weight: NDArray[Any], axes: Sequence[Axis]) -> relax.Expr:
    """Return a convolution of few windows, which are the rows of a product with the constant kernels.

    These are packed when the model is built, and few windows fill no panel. Transpositions before and behind, as
    models of channels that come last have them, are views of the rows or one with their gathering.
    """
    batch, channels, *_ = node.shape(0)
    count, (axis,) = weight.shape[0], long_axes(axes)
    x = reshape(node, node.tensor(0), [batch, channels, axis.length])
    rows = node.emit(relax.op.permute_dims(windows(node, x, [axis]), [0, 3, 2, 1]))
    right = np.ascontiguousarray(weight.reshape(count, -1, axis.kernel).transpose(2, 1, 0)).reshape(-1, count)
    inner = product([channels, axis.kernel])
    y = matmul(node, reshape(node, rows, [batch, axis.positions, inner]), constant(right))
    if node.has(2):
        y = node.emit(relax.op.add(y, node.tensor(2)))
    y = node.emit(relax.op.permute_dims(y, [0, 2, 1]))
    return reshape(node, y, [batch, count, *(axis.positions for axis in axes)])


_FEW = 16
"""Channels of the result for which gathering windows takes about as long as multiplying them."""

_SHORT = 32
"""Elements of a window, of which the same is true."""

_WIDE = 48
"""Windows in a row that fill vectors well enough."""


def convolution(
    node: Node, given: tuple[relax.Expr, relax.Expr, relax.Expr], axes: Sequence[Axis], groups: int
) -> relax.Expr:
    """Return a convolution by a kernel of its own; one of one axis has rows of one element.

    Args:
        node: The node.
        given: Images, kernels and bias, float32.
        axes: The axes of the images.
        groups: How many.
    """
    x, weights, bias = given
    batch, channels, *lengths = node.importer.dims(x, node.name)
    count = node.importer.dims(weights, node.name)[0]
    every, axes = axes, long_axes(axes)
    if len(axes) < len(lengths):
        lengths = [axis.length for axis in axes]
        x = reshape(node, x, [batch, channels, *lengths])
    spare = [Axis(1, 1, 1, 1, 0, 0)] * (2 - len(axes))
    both = [*spare, *axes]
    ones = [1] * len(spare)
    if not all(isinstance(axis.before, int) for axis in axes):
        # The kernel has numbers.
        spans = [same_span(axis.length, axis.kernel, axis.stride, axis.dilation) for axis in axes]
        x = padded(node, x, [axis.before for axis in axes], spans, 0)
        lengths = node.importer.dims(x, node.name)[2:]
        both = [*spare, *(replace(axis, before=0, after=0) for axis in axes)]
    x = reshape(node, x, [batch, channels, *ones, *lengths])
    weights = reshape(node, weights, [count, quotient([channels], [groups]), *(axis.kernel for axis in both)])
    rows, columns = both
    call = ConvolutionOp(
        groups,
        (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        (rows.before, columns.before),
        any(axis.beyond for axis in both),
    )
    shape = [expression(d) for d in (batch, count, rows.positions, columns.positions)]
    name = "convolution_" + re.sub(r"\W+", "_", str(call))
    y = node.call(name, call, [x, weights, bias], relax.TensorType(shape, "float32"))
    return reshape(node, y, [batch, count, *(axis.positions for axis in every)])


CONVERTERS: Mapping[str, Converter] = {"Conv": _conv}

REFUSED: Mapping[str, str] = {
    "com.microsoft.nchwc::*": "keeps channels in blocks as wide as the vectors of one processor, as onnxruntime saves "
    "a model at ORT_ENABLE_ALL: save it at ORT_ENABLE_EXTENDED"
}
