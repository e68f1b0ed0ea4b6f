"""Slice: parts of axes whose lengths may be known only at run time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.shape_folding import static
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, simplified, size
from softq.errors import RefusalError


def _slice(node: Node) -> list[relax.Expr]:
    dims = [plain(d) for d in node.shape(0)]
    starts, ends = list(node.sizes(1).ravel()), list(node.sizes(2).ravel())
    axes = _constants(node, 3, list(range(len(starts))))
    steps = _constants(node, 4, [1] * len(starts))
    x = node.tensor(0)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = node.axis(axis, len(dims))
        if step < 0 and not all(isinstance(v, int) for v in (start, end, dims[axis])):
            raise RefusalError(f"Slice {node.name!r}: a negative step along an axis of unknown length")
        low, high = (_bound(node, dims[axis], v, step, v is end) for v in (start, end))
        if equal(low, 0) and equal(high, dims[axis]) and step == 1:
            continue
        if isinstance(low, int) and isinstance(high, int) and step > 0:
            high = max(low, high)  # nothing, where it ends before it begins
        elif step > 0:
            high = _after(node, low, high)
        if step < 0:
            # TVM counts an end of -1 from the back, where it stands for "before the first": the elements are named.
            assert isinstance(low, int)
            assert isinstance(high, int)
            part = relax.op.take(x, constant(np.arange(low, high, step)), axis, mode="clip")
        else:
            bounds = [expression(low)], [expression(high)]
            part = relax.op.strided_slice(x, [axis], *bounds, [step], assume_inbound=True)
        x = node.emit(part)
        dims = [plain(d) for d in node.importer.dims(x, node.name)]
    return [x]


def _after(node: Node, low: Dim, high: Dim) -> Dim:
    """Return the end of a slice, which is its beginning where nothing is between them."""
    length = simplified(expression(high) - expression(low))
    if isinstance(length, int):
        return high if length >= 0 else low
    node.require(Limit(size(length), 0, 2**40, f"slice {node.name} ends before it begins"))
    return high


def _bound(node: Node, length: Dim, value: Dim, step: int, is_end: bool) -> Dim:
    """Return where a slice begins or ends, counted from the front and within the axis."""
    if isinstance(value, int) and isinstance(length, int):
        value += length if value < 0 else 0
        low, high = (0, length) if step > 0 else (-1, length - 1)
        return min(max(value, low), high)
    if isinstance(value, int):
        if value <= -(2**31):
            return 0  # "From the first on", whatever the length: no axis of a model is that long.
        if value < 0:
            node.require(Limit(size(length), -value, 2**31, f"slice {node.name} takes {-value} elements off an axis"))
            return simplified(expression(length) + value)
        if value >= 2**31 - 1:
            return length
        if value:
            node.require(Limit(size(length), value, 2**31, f"slice {node.name} needs an axis of at least {value}"))
        return value
    if not equal(value, length):
        room = simplified(expression(length) - expression(value))
        needs = f"slice {node.name} goes to {value} along an axis of {length}"
        if not isinstance(room, int) or room < 0:
            node.require(Limit(size(room), 0, 2**40, needs))
    return value


def _constants(node: Node, position: int, default: list[int]) -> list[int]:
    if not node.has(position):
        return default
    given = static(node.sizes(position))
    if given is None:
        raise RefusalError(f"{node.operator} {node.name!r}: {node.inputs[position]!r} is not constant")
    return [int(v) for v in given.ravel()]


CONVERTERS: Mapping[str, Converter] = {"Slice": _slice}
