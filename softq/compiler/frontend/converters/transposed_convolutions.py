"""Transposed convolutions: every element of the input as a product with all kernels, and their sums where they overlap.

The products are a convolution with kernels of one element. An element of the result is the sum of those few that lie on
it, at most the kernel's length over the stride along each axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.convolutions import Axis, convolution
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.ops.linear import ConvolutionOp
from softq.compiler.tir.symbolic import Dim, expression, plain, product, simplified
from softq.errors import RefusalError

_MOST = 16
"""Products that are added up for an element, in one expression."""


@dataclass(frozen=True)
class _Axis:
    length: Dim
    kernel: int
    stride: int
    before: int
    result: Dim

    @property
    def overlaps(self) -> int:
        """How many kernels lie on an element at most."""
        return -(-self.kernel // self.stride)


def _axes(node: Node, lengths: list[Dim], kernel: list[int]) -> list[_Axis]:
    rank, given = len(lengths), node.attributes
    strides = list(given.get("strides") or [1] * rank)
    extra = list(given.get("output_padding") or [0] * rank)
    pads = list(given.get("pads") or [0] * (2 * rank))
    auto = str(given.get("auto_pad", "NOTSET"))
    axes: list[_Axis] = []
    for i, (length, size, stride, more) in enumerate(zip(lengths, kernel, strides, extra, strict=True)):
        before, after = (pads[i], pads[rank + i]) if auto == "NOTSET" else (0, 0)
        if auto.startswith("SAME"):
            total = max(size + more - stride, 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after = total - before
        span = expression(length) * stride + (more + size - stride - before - after)
        axes.append(_Axis(length, size, stride, before, simplified(span)))
    return axes


def _conv_transpose(node: Node) -> list[relax.Expr] | None:
    if node.attributes.get("output_shape"):
        what = "output_shape for axes whose lengths are not constant; give pads"
        raise RefusalError(f"{node.operator} {node.name!r}: TVM has no {what}")
    x, weights = node.tensor(0), node.tensor(1)
    batch, channels, *lengths = map(plain, node.shape(0))
    _, outer, *sizes = map(plain, node.shape(1))
    kernel = [size for size in sizes if isinstance(size, int)]
    groups, rank = int(node.attributes.get("group", 1)), len(lengths)
    types = {str(t.ty.dtype) for t in (x, weights)}
    dilated = any(d != 1 for d in node.attributes.get("dilations") or ())
    if types != {"float32"} or len(kernel) < rank or rank > 2 or dilated or not isinstance(channels, int):
        return None
    if not isinstance(outer, int) or not node.importer.supports(ConvolutionOp, "float32"):
        return None
    axes = _axes(node, lengths, kernel)
    if int(np.prod([axis.overlaps for axis in axes])) > _MOST:
        return None
    count, taps = groups * outer, int(np.prod(kernel))
    known = node.array(1)
    order, shape = [0, 2, 1], [groups, channels // groups, outer * taps]
    if known is None:
        rows = node.emit(relax.op.permute_dims(reshape(node, weights, shape), order))
    else:
        rows = constant(np.ascontiguousarray(known.reshape(shape).transpose(order)))
    rows = reshape(node, rows, [count * taps, channels // groups, *[1] * rank])
    none = constant(np.zeros(count * taps, np.float32))
    products = convolution(node, (x, rows, none), [Axis(n, 1, 1, 1, 0, 0) for n in lengths], groups)
    products = reshape(node, products, [batch, count, *kernel, *lengths])
    bias = node.tensor(2) if node.has(2) else constant(np.zeros(count, np.float32))
    if product(axis.result for axis in axes) == 0:
        return None

    def compute(given: Any, bias: Any) -> Any:
        def element(image: Any, channel: Any, *at: Any) -> Any:
            total = bias[channel]
            for steps in itertools.product(*(range(axis.overlaps) for axis in axes)):
                total = total + _product(given, (image, channel), at, steps, axes)
            return total

        results = [expression(axis.result) for axis in axes]
        return te.compute([*given.shape[:2], *results], element, name="transposed_convolution")

    return [node.importer.bb.emit_te(compute, products, bias, primfunc_name_hint="transposed_convolution")]


def _product(given: Any, outer: Any, at: Any, steps: Any, axes: list[_Axis]) -> Any:
    """Return the product that so many strides before an element lies on it, or zero."""
    within, places, inside = [], [], []
    for i, step, axis in zip(at, steps, axes, strict=True):
        position, stride = i + axis.before, expression(axis.stride)
        tap, place = tirx.floormod(position, stride) + step * axis.stride, tirx.floordiv(position, stride) - step
        within.append(tap)
        places.append(place)
        inside += [tap < axis.kernel] * (axis.kernel % axis.stride > 0 and step == axis.overlaps - 1)
        inside += [place >= 0] * (step > 0) + [place < axis.length]
    value = given[(*outer, *within, *places)]
    return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, "float32"))


CONVERTERS: Mapping[str, Converter] = {"ConvTranspose": _conv_transpose}
