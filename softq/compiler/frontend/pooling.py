"""Windows of pools as tensor expressions: where their greatest elements stand, and means of what is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.onnx_node import Node
from softq.compiler.frontend.parameters import emit, integer, total
from softq.compiler.tir.symbolic import Dim, expression


@dataclass(frozen=True)
class Windows:
    """The windows of an axis.

    Attributes:
        kernel: Elements of a window.
        stride: From a window to the next.
        dilation: From an element of a window to the next.
        before: How many places stand in front of the axis.
        count: How many windows there are.
    """

    kernel: int
    stride: int
    dilation: int
    before: Dim
    count: Dim


def find_values(node: Node, x: relax.Expr, axes: Sequence[Windows]) -> relax.Expr:
    """Return the greatest elements of windows."""
    dtype, counts = str(x.ty.dtype), [axis.count for axis in axes]
    least = tirx.const(-np.inf if dtype.startswith("float") else int(np.iinfo(dtype).min), dtype)
    # TVM's own begins with the least finite number, which no element of a window of infinities equals.
    most = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: least, name="most")

    def greatest(images: Any, before: Any, counts: Any) -> Any:
        within = _reduced(axes)

        def element(batch: Any, channel: Any, *window: Any) -> Any:
            at = _places(axes, window, within, before)
            inside = _inside(at, images.shape[2:])
            return most(tirx.if_then_else(inside, images[(batch, channel, *at)], least), axis=within)

        return te.compute([*images.shape[:2], *counts], element, name="greatest")

    return emit(node, "greatest", greatest, x, [axis.before for axis in axes], counts)


def find_greatest(node: Node, x: relax.Expr, axes: Sequence[Windows], columns: bool) -> list[relax.Expr]:
    """Return the greatest elements of windows, and where the first of each stands in the whole tensor.

    Args:
        node: The node.
        x: Images, [batch, channels, lengths...].
        axes: The windows of each axis.
        columns: Whether places of an image are counted down the columns of its last two axes.
    """
    values, before = find_values(node, x, axes), [axis.before for axis in axes]

    def first(images: Any, values: Any, before: Any, counts: Any) -> Any:
        within = _reduced(axes)
        lengths = list(images.shape[2:])

        def element(batch: Any, channel: Any, *window: Any) -> Any:
            at = _places(axes, window, within, before)
            # In rows the first one is that of the least place. Nothing is unequal to itself but NaN, which is greatest.
            less = images[(batch, channel, *at)] < values[(batch, channel, *window)]
            here = tirx.all(_inside(at, lengths), tirx.Not(less))
            return te.min(tirx.if_then_else(here, _offset(at, lengths), integer(_NOWHERE)), axis=within)

        return te.compute([*images.shape[:2], *counts], element, name="first")

    places = emit(node, "first", first, x, values, before, [axis.count for axis in axes])

    def counted(places: Any, lengths: Any) -> Any:
        rest = lengths[2:]

        def element(batch: Any, channel: Any, *window: Any) -> Any:
            place = places[(batch, channel, *window)]
            if columns and len(rest) > 1:
                # The last two axes change their roles.
                row, column = tirx.floormod(tirx.floordiv(place, rest[-1]), rest[-2]), tirx.floormod(place, rest[-1])
                place = place - row * rest[-1] - column + column * rest[-2] + row
            plane = integer(1)
            for length in rest:
                plane = plane * length
            return (batch * lengths[1] + channel) * plane + place

        return te.compute(places.shape, element, name="counted")

    return [values, emit(node, "counted", counted, places, node.importer.dims(x, node.name))]


_NOWHERE = 1 << 62


def find_means(node: Node, x: relax.Expr, axes: Sequence[Windows]) -> relax.Expr:
    """Return the means of those elements of windows that are there, float32 or float64."""

    added, before = add_windows(node, x, axes), [axis.before for axis in axes]

    def means(sums: Any, before: Any, lengths: Any) -> Any:
        def element(*at: Any) -> Any:
            there = integer(1)
            for axis, window, front, length in zip(axes, at[2:], before, lengths[2:], strict=True):
                steps = [window * axis.stride - front + k * axis.dilation for k in range(axis.kernel)]
                hits = [tirx.Select(tirx.And(step >= 0, step < length), integer(1), integer(0)) for step in steps]
                there = there * total(hits)
            return sums[at] / there.astype(sums.dtype)

        return te.compute(sums.shape, element, name="means")

    return emit(node, "means", means, added, before, node.importer.dims(x, node.name))


def add_windows(node: Node, x: relax.Expr, axes: Sequence[Windows]) -> relax.Expr:
    """Return the sums of the elements of windows."""

    def sums(images: Any, before: Any, counts: Any) -> Any:
        within = _reduced(axes)

        def element(batch: Any, channel: Any, *window: Any) -> Any:
            at = _places(axes, window, within, before)
            here = _inside(at, images.shape[2:])
            value = tirx.if_then_else(here, images[(batch, channel, *at)], tirx.const(0, images.dtype))
            return te.sum(value, axis=within)

        return te.compute([*images.shape[:2], *counts], element, name="sums")

    return emit(node, "sums", sums, x, [axis.before for axis in axes], [axis.count for axis in axes])


def _reduced(axes: Sequence[Windows]) -> list[Any]:
    return [te.reduce_axis((0, axis.kernel), f"k{i}") for i, axis in enumerate(axes)]


def _places(axes: Sequence[Windows], window: Sequence[Any], within: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    return [
        w * axis.stride + k * axis.dilation - front
        for axis, w, k, front in zip(axes, window, within, before, strict=True)
    ]


def _inside(at: Sequence[Any], lengths: Sequence[Any]) -> Any:
    return tirx.all(*(check for i, d in zip(at, lengths, strict=True) for check in (i >= 0, i < d)))


def _offset(at: Sequence[Any], lengths: Sequence[Any]) -> Any:
    place = integer(0)
    for i, length in zip(at, lengths, strict=True):
        place = place * expression(length) + i
    return place
