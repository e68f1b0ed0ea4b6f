"""Operators that put patches of images together, or take them at places that data give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.frontend.converters.indices import checked_positions
from softq.compiler.frontend.converters.selections import compute
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.shape_folding import sizes, static
from softq.compiler.ops.data_movement import ScatterOp
from softq.compiler.tir.symbolic import expression, product, quotient, simplified
from softq.errors import RefusalError


def _numbers(node: Node, attribute: str, default: list[int]) -> list[int]:
    return [int(v) for v in node.attributes.get(attribute) or default]


def _col2im(node: Node) -> list[relax.Expr]:
    image, block = list(node.sizes(1).ravel()), list(node.sizes(2).ravel())
    rank = len(image)
    strides, dilations = _numbers(node, "strides", [1] * rank), _numbers(node, "dilations", [1] * rank)
    pads = _numbers(node, "pads", [0] * (2 * rank))
    channels = quotient([node.shape(0)[1]], [product(block)])
    if static(node.sizes(2)) is None:
        # A quotient by what data decide is no length of a tensor in TVM's code: it becomes a dimension.
        (channels,) = node.importer.measure(node.importer.written(sizes([channels]), "int64"))

    def image_of(x: Any, channels: Any, image: Any, kernel: Any) -> Any:
        reduced = [te.reduce_axis((0, k), f"k{i}") for i, k in enumerate(kernel)]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        windows = [
            tirx.floordiv(length + pads[i] + pads[rank + i] - reach[i], strides[i]) + 1
            for i, length in enumerate(image)
        ]

        def element(*at: Any) -> Any:
            batch, channel, place = at[0], at[1], at[2:]
            inside: list[Any] = []
            row, window = channel, tirx.IntImm("int64", 0)
            for i in range(rank):
                from_start = place[i] + pads[i] - reduced[i] * dilations[i]
                here = tirx.floordiv(from_start, strides[i])
                inside += [from_start >= 0, tirx.floormod(from_start, strides[i]) == 0, here < windows[i]]
                row, window = row * kernel[i] + reduced[i], window * windows[i] + here
            value = tirx.if_then_else(tirx.all(*inside), x[batch, row, window], tirx.const(0, x.dtype))
            return te.sum(value, axis=reduced)

        return te.compute([x.shape[0], channels, *image], element, name="image_of")

    shapes = [[expression(d) for d in shape] for shape in (image, block)]
    return [compute(node, "image_of", image_of, node.tensor(0), expression(channels), *shapes)]


def _deform_conv(node: Node) -> list[relax.Expr]:
    if len(node.shape(0)) != 4:
        raise RefusalError(f"DeformConv {node.name!r} of {len(node.shape(0)) - 2} axes has no kernel; images have 2")
    strides, dilations = _numbers(node, "strides", [1, 1]), _numbers(node, "dilations", [1, 1])
    pads = _numbers(node, "pads", [0, 0, 0, 0])
    groups, offset_groups = int(node.attributes.get("group", 1)), int(node.attributes.get("offset_group", 1))

    def convolved(x: Any, weights: Any, offset: Any, *rest: Any) -> Any:
        bias, mask = rest[0] if node.has(3) else None, rest[-1] if node.has(4) else None
        count, per_group, kernel = weights.shape[0], weights.shape[1], list(weights.shape[2:])
        per_offset, outputs = tirx.floordiv(x.shape[1], offset_groups), tirx.floordiv(count, groups)
        zero = tirx.const(0, x.dtype)

        def sample(b: Any, c: Any, i: Any, j: Any, h: Any, w: Any) -> Any:
            tap = (tirx.floordiv(c, per_offset) * kernel[0] + i) * kernel[1] + j
            y, z = (
                tirx.Cast(x.dtype, place * stride - pad + k * dilation) + offset[b, tap * 2 + axis, h, w]
                for axis, (place, stride, pad, k, dilation) in enumerate(
                    zip((h, w), strides, pads, (i, j), dilations, strict=False)
                )
            )
            value: Any = zero
            for down in (0, 1):
                for right in (0, 1):
                    row, column = (tirx.floor(v) + tirx.const(d, x.dtype) for v, d in ((y, down), (z, right)))
                    share = [v - f if d else f + tirx.const(1, x.dtype) - v
                             for v, d, f in ((y, down, tirx.floor(y)), (z, right, tirx.floor(z)))]  # fmt: skip
                    inside = tirx.all(
                        row >= zero,
                        row < tirx.Cast(x.dtype, x.shape[2]),
                        column >= zero,
                        column < tirx.Cast(x.dtype, x.shape[3]),
                    )
                    there = x[b, c, tirx.Cast("int64", row), tirx.Cast("int64", column)]
                    value = value + tirx.if_then_else(inside, there * share[0] * share[1], zero)
            return value if mask is None else value * mask[b, tap, h, w]

        shape = [x.shape[0], x.shape[1], *kernel, *offset.shape[2:]]
        sampled = te.compute(shape, sample, name="sampled")
        axes = [te.reduce_axis((0, d), f"k{i}") for i, d in enumerate([per_group, *kernel])]

        def summed(b: Any, o: Any, h: Any, w: Any) -> Any:
            channel = tirx.floordiv(o, outputs) * per_group + axes[0]
            return te.sum(
                sampled[b, channel, axes[1], axes[2], h, w] * weights[o, axes[0], axes[1], axes[2]], axis=axes
            )

        shape = [x.shape[0], count, *offset.shape[2:]]
        result = te.compute(shape, summed, name="summed")
        if bias is None:
            return result
        return te.compute(shape, lambda b, o, h, w: result[b, o, h, w] + bias[o], name="biased")

    given = [node.tensor(i) for i in range(5) if node.has(i)]
    return [compute(node, "convolved", convolved, *given)]


def _max_unpool(node: Node) -> list[relax.Expr]:
    dims, kernel = node.shape(0), _numbers(node, "kernel_shape", [])
    rank = len(kernel)
    strides, pads = _numbers(node, "strides", [1] * rank), _numbers(node, "pads", [0] * (2 * rank))
    whole = [*dims[:2]]
    for i, length in enumerate(dims[2:]):
        grown = (expression(length) - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]
        whole.append(simplified(grown))
    x, count, total = node.tensor(0), product(dims), product(whole)
    at = checked_positions(node, reshape(node, node.tensor(1), [count, 1]), [total])
    flat = node.emit(relax.op.zeros(relax.ShapeExpr([expression(total)]), str(x.ty.dtype)))
    values = reshape(node, x, [count])
    result = node.call("scatter_1_none", ScatterOp(1, "none"), [flat, at, values], flat.ty)
    result = reshape(node, result, whole)
    if not node.has(2):
        return [result]
    wanted = list(node.sizes(2).ravel())

    def padded(x: Any, wanted: Any) -> Any:
        def element(*at: Any) -> Any:
            inside = tirx.all(*(i < length for i, length in zip(at, x.shape, strict=True)))
            return tirx.if_then_else(inside, x[at], tirx.const(0, x.dtype))

        return te.compute(wanted, element, name="padded")

    return [compute(node, "padded", padded, result, [expression(d) for d in wanted])]


CONVERTERS: Mapping[str, Converter] = {"Col2Im": _col2im, "DeformConv": _deform_conv, "MaxUnpool": _max_unpool}
