"""Pads that make a result as long as ONNX's `auto_pad` wants it, where lengths may be known at run time only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.pooling import Windows, add_windows, find_greatest, find_means, find_values
from softq.compiler.ops.pooling import GreatestOp
from softq.compiler.tir.symbolic import Dim, expression, plain, simplified
from softq.errors import RefusalError


def same_pads(length: Dim, kernel: int, stride: int, dilation: int, upper: bool) -> tuple[Dim, Dim]:
    """Return what stands before and behind an axis so that it has a window for every `stride` elements.

    Args:
        length: Elements of the axis.
        kernel: Elements of a window.
        stride: From a window to the next.
        dilation: From an element of a window to the next.
        upper: Whether the odd element stands behind.
    """
    span = expression(length)
    last = tirx.floordiv(span + (stride - 1), expression(stride)) * stride - stride
    total = expression(simplified(tirx.max(last + ((kernel - 1) * dilation + 1) - span, expression(0))))
    half = tirx.floordiv(total, expression(2))
    less, more = simplified(half), simplified(total - half)
    return (less, more) if upper else (more, less)


def check_auto_pad(node: Node) -> None:
    """Refuse padding by the result's shape where lengths are not known."""
    same = str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    if same and not all(isinstance(plain(d), int) for d in node.shape(0)[2:]):
        what = "TVM has no auto_pad for axes whose lengths are not constant"
        raise RefusalError(f"{node.operator} {node.name!r}: {what}")


def same_windows(length: Dim, stride: int) -> Dim:
    """Return how many windows those pads make."""
    return simplified(tirx.floordiv(expression(length) + (stride - 1), expression(stride)))


def same_span(length: Dim, kernel: int, stride: int, dilation: int) -> Dim:
    """Return how many elements those windows reach over, in a form from which their number follows."""
    return simplified((expression(same_windows(length, stride)) - 1) * stride + ((kernel - 1) * dilation + 1))


def padded(node: Node, x: relax.Expr, befores: Sequence[Dim], spans: Sequence[Dim], value: float) -> relax.Expr:
    """Return a tensor whose last axes have these lengths: elements of a value stand before and behind its own."""

    def compute(tensor: Any) -> Any:
        outer = len(tensor.shape) - len(spans)
        lengths = tensor.shape[outer:]

        def element(*index: Any) -> Any:
            at = [i - expression(before) for i, before in zip(index[outer:], befores, strict=True)]
            inside = tirx.all(*(tirx.And(i >= 0, i < d) for i, d in zip(at, lengths, strict=True)))
            return tirx.if_then_else(inside, tensor[(*index[:outer], *at)], tirx.const(value, tensor.dtype))

        return te.compute([*tensor.shape[:outer], *map(expression, spans)], element, name="padded")

    return node.importer.bb.emit_te(compute, x, primfunc_name_hint="padded")


_MAX_POOLS = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}


def _axes(node: Node) -> list[Windows]:
    """Return the windows of a pool.

    Raises:
        RefusalError: how many there are is not known.
    """
    lengths, kernel = [plain(d) for d in node.shape(0)[2:]], list(node.attributes["kernel_shape"])
    ones, auto = [1] * len(lengths), str(node.attributes.get("auto_pad", "NOTSET"))
    strides, dilations = (list(node.attributes.get(name) or ones) for name in ("strides", "dilations"))
    pads = list(node.attributes.get("pads") or [0] * 2 * len(lengths)) if auto == "NOTSET" else [0] * 2 * len(lengths)
    axes: list[Windows] = []
    for i, (length, size, stride, dilation) in enumerate(zip(lengths, kernel, strides, dilations, strict=True)):
        if auto.startswith("SAME"):
            before, _ = same_pads(length, size, stride, dilation, auto == "SAME_UPPER")
            axes.append(Windows(size, stride, dilation, before, same_windows(length, stride)))
            continue
        span = expression(length) + (pads[i] + pads[len(lengths) + i] - (size - 1) * dilation - 1)
        if not node.attributes.get("ceil_mode", 0):
            count = simplified(tirx.floordiv(span, expression(stride)) + 1)
        elif not isinstance(length, int):
            raise RefusalError(f"{node.operator} {node.name!r}: ceil_mode on axes whose lengths are not constant")
        else:
            count = -(-int(plain(simplified(span))) // stride) + 1
            count -= (count - 1) * stride >= length + pads[i]  # No window begins behind the axis.
        axes.append(Windows(size, stride, dilation, pads[i], count))
    return axes


def _max_pool(node: Node) -> list[relax.Expr] | None:
    """Pad with what no element is less than where pads are not known; TVM has none that only the run tells."""
    auto, x = str(node.attributes.get("auto_pad", "NOTSET")), node.tensor(0)
    if len(node.outputs) > 1 and node.outputs[1]:
        return find_greatest(node, x, _axes(node), columns=bool(node.attributes.get("storage_order", 0)))
    own = _greatest(node, x)
    if own is not None:
        return own
    lengths, dtype = [plain(d) for d in node.shape(0)[2:]], str(x.ty.dtype)
    known = all(isinstance(length, int) for length in lengths)
    if dtype.startswith("float") and (known or not node.attributes.get("ceil_mode", 0)):
        # TVM's are the least finite number where a window has nothing but -inf.
        return [find_values(node, x, _axes(node))]
    if not auto.startswith("SAME"):
        return None
    kernel, ones = list(node.attributes["kernel_shape"]), [1] * len(lengths)
    strides = list(node.attributes.get("strides") or ones)
    dilations = list(node.attributes.get("dilations") or ones)
    axes = list(zip(lengths, kernel, strides, dilations, strict=True))
    pads = [same_pads(*axis, upper=auto == "SAME_UPPER") for axis in axes]
    numbers = [pad for end in zip(*pads, strict=True) for pad in end if isinstance(pad, int)]
    if len(numbers) < 2 * len(pads):
        least = -np.inf if dtype.startswith("float") else int(np.iinfo(dtype).min)
        x = padded(node, x, [before for before, _ in pads], [same_span(*axis) for axis in axes], least)
        numbers = [0] * (2 * len(pads))
    return [node.emit(_MAX_POOLS[len(lengths)](x, kernel, strides, numbers, dilations))]


def _greatest(node: Node, x: relax.Expr) -> list[relax.Expr] | None:
    """Return the greatest elements by a kernel of its own, if there is one; one axis is a row."""
    rank, (batch, channels, *lengths) = len(node.shape(0)) - 2, map(plain, node.shape(0))
    if str(x.ty.dtype) != "float32" or rank not in (1, 2) or not node.importer.supports(GreatestOp, "float32"):
        return None
    if node.attributes.get("ceil_mode", 0) and not all(isinstance(length, int) for length in lengths):
        return None
    axes = _axes(node)
    before = [axis.before for axis in axes if isinstance(axis.before, int)]
    if len(before) < rank or any(isinstance(axis.count, int) and axis.count < 1 for axis in axes):
        return None
    spare, counts = [1] * (2 - rank), [axis.count for axis in axes]
    both = [*[Windows(1, 1, 1, 0, 1)] * (2 - rank), *axes]
    rows, columns = ((axis.kernel, axis.stride, axis.dilation) for axis in both)
    front = (*[0] * (2 - rank), *before)
    call = GreatestOp(*zip(rows, columns, strict=True), (front[0], front[1]))
    shape = [expression(d) for d in (batch, channels, *spare, *counts)]
    name = "greatest_" + re.sub(r"\W+", "_", str(call))
    images = reshape(node, x, [batch, channels, *spare, *lengths])
    y = node.call(name, call, [images], relax.TensorType(shape, "float32"))
    return [reshape(node, y, [batch, channels, *counts])]


def _average_pool(node: Node) -> list[relax.Expr] | None:
    """Take means where the run tells how long axes are; those of known lengths are TVM's."""
    same = str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    if not same or all(isinstance(plain(d), int) for d in node.shape(0)[2:]):
        return None
    if node.attributes.get("count_include_pad", 0):
        raise RefusalError(f"AveragePool {node.name!r}: count_include_pad on axes whose lengths are not constant")
    x = node.tensor(0)
    dtype = str(x.ty.dtype)
    wide = x if dtype != "float16" else node.emit(relax.op.astype(x, "float32"))
    means = find_means(node, wide, _axes(node))
    return [means if dtype != "float16" else node.emit(relax.op.astype(means, dtype))]


def _lp_pool(node: Node) -> list[relax.Expr] | None:
    """Take norms where the run tells how long axes are, or where the last window may be cut off; others are TVM's."""
    same = str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    known = all(isinstance(plain(d), int) for d in node.shape(0)[2:])
    if not node.attributes.get("ceil_mode", 0) and (known or not same):
        return None
    x, p = node.tensor(0), int(node.attributes.get("p", 2))
    dtype = str(x.ty.dtype)
    wide = x if dtype != "float16" else node.emit(relax.op.astype(x, "float32"))
    kind, size = str(wide.ty.dtype), node.emit(relax.op.abs(wide))
    powers = {1: size, 2: node.emit(relax.op.multiply(wide, wide))}.get(p)
    if powers is None:
        powers = node.emit(relax.op.power(size, relax.const(float(p), kind)))
    sums = add_windows(node, powers, _axes(node))
    if p != 1:
        root = relax.op.sqrt(sums) if p == 2 else relax.op.power(sums, relax.const(1.0 / p, kind))
        sums = node.emit(root)
    return [sums if kind == dtype else node.emit(relax.op.astype(sums, dtype))]


CONVERTERS: Mapping[str, Converter] = {"MaxPool": _max_pool, "AveragePool": _average_pool, "LpPool": _lp_pool}
