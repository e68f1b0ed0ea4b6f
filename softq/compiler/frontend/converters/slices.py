"""Slice and Split: parts of axes whose lengths may be known only at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.parameters import (
    count_of,
    emit,
    flat_numbers,
    integer,
    known_numbers,
    length_between,
    table,
    total,
)
from softq.compiler.tir.symbolic import Dim, equal, expression, least, plain, simplified, size
from softq.errors import RefusalError


def _slice(node: Node) -> list[relax.Expr]:
    dims, given = [plain(d) for d in node.shape(0)], node.importer.sizes
    axes, steps = (known_numbers(node, i) if node.has(i) else np.zeros(0, np.int64) for i in (3, 4))
    if axes is None or steps is None or any(node.inputs[i] not in given for i in (1, 2)):
        return [_by_numbers(node, dims)]
    starts, ends = list(node.sizes(1).ravel()), list(node.sizes(2).ravel())
    axes = [int(a) for a in axes] if node.has(3) else list(range(len(starts)))
    steps = [int(s) for s in steps] if node.has(4) else [1] * len(starts)
    if any(s < 0 and not isinstance(dims[node.axis(a, len(dims))], int) for a, s in zip(axes, steps, strict=True)):
        return [_by_numbers(node, dims)]
    x = node.tensor(0)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = node.axis(axis, len(dims))
        low, high = (_bound(node, dims[axis], v, step, v is end) for v in (start, end))
        if equal(low, 0) and equal(high, dims[axis]) and step == 1:
            continue
        if step < 0:
            if not all(isinstance(v, int) for v in (start, end)):
                return [_by_numbers(node, [plain(d) for d in node.shape(0)])]
            # TVM counts an end of -1 from the back, where it stands for "before the first": the elements are named.
            assert isinstance(low, int)
            assert isinstance(high, int)
            x = node.emit(relax.op.take(x, constant(np.arange(low, high, step)), axis, mode="clip"))
        elif isinstance(low, int) and isinstance(high, int):
            high = max(low, high)  # nothing, where it ends before it begins
            x = node.emit(relax.op.strided_slice(x, [axis], [low], [high], [step], assume_inbound=True))
        else:
            # A bound that is a number is on the axis in every run.
            reaches = isinstance(low, int) and equal(high, dims[axis])
            length = simplified(expression(high) - low) if reaches else length_between(node, low, high)
            dims[axis] = simplified(tirx.floordiv(expression(length) + (step - 1), integer(step)))
            x = _cut_part(node, x, axis, low, dims, step)
        dims = [plain(d) for d in node.importer.dims(x, node.name)]
    return [x]


def _cut_part(node: Node, x: relax.Expr, axis: int, begin: Dim, shape: Sequence[Dim], step: int = 1) -> relax.Expr:
    """Return a part of this shape, every `step`-th along an axis; TVM's own operator might give another length."""

    def compute(values: Any, lengths: Any, first: Any) -> Any:
        def element(*indices: Any) -> Any:
            return values[tuple(first[0] + i * step if place == axis else i for place, i in enumerate(indices))]

        return te.compute(lengths, element, name="part")

    return emit(node, "part", compute, x, shape, [begin])


_TO_THE_END = 2**20
"""A bound from which on it stands for the end of an axis of unknown length: exporters write 10^9 for it, too."""


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
        if value >= _TO_THE_END:
            if value < 2**31 - 1:
                because = f"slice {node.name} was built to take all that an axis has, up to {value}"
                node.require(Limit(size(length), 0, value, because))
            return length
        if value:
            node.require(Limit(size(length), value, 2**31, f"slice {node.name} needs an axis of at least {value}"))
        return value
    if not equal(value, length):
        room = simplified(expression(length) - expression(value))
        needs = f"slice {node.name} goes to {value} along an axis of {length}"
        if not isinstance(room, int) or room < 0:
            node.require(Limit(size(room), 0, 2**40, needs))
    if least(value) < 0:
        node.require(Limit(size(value), 0, 2**40, f"slice {node.name} has a bound that counts from the end: {value}"))
    return value


def _by_numbers(node: Node, dims: Sequence[Dim]) -> relax.Expr:
    """Return a slice of which numbers that the model computes say where it begins, or how far it goes.

    For each axis the first element, the step and the count are computed; the count is measured.
    """
    given = [flat_numbers(node, i) for i in range(1, len(node.inputs)) if node.has(i)]
    places = [i for i in range(1, len(node.inputs)) if node.has(i)]
    rank, count = len(dims), max(count_of(node, x) for x in given)
    if any(count_of(node, x) != count for x in given):
        raise RefusalError(f"Slice {node.name!r}: starts, ends, axes and steps are not as many as each other")

    def part(axis: int, which: int) -> Callable[..., Any]:
        def element(*tensors: Any) -> Any:
            *numbers, lengths = tensors
            by_place = dict(zip(places, numbers, strict=True))
            result = (integer(0), integer(1), lengths[axis])[which]
            for number in range(count):
                named = by_place[3][number] if 3 in by_place else integer(number)
                step = by_place[4][number] if 4 in by_place else integer(1)
                cut = _cut(by_place[1][number], by_place[2][number], step, lengths[axis])
                result = tirx.Select(tirx.Or(named == axis, named == axis - rank), cut[which], result)
            return result

        return element

    counts = table(node, "counts", [part(axis, 2) for axis in range(rank)], *given, dims)
    shape = node.importer.measure(counts)
    where = [part(axis, which) for which in (0, 1) for axis in range(rank)]
    firsts = table(node, "firsts", where, *given, dims)

    def compute(x: Any, first: Any, lengths: Any) -> Any:
        def element(*at: Any) -> Any:
            return x[tuple(first[axis] + i * first[rank + axis] for axis, i in enumerate(at))]

        return te.compute(lengths, element, name="part")

    return emit(node, "part", compute, node.tensor(0), firsts, shape)


def _cut(start: Any, end: Any, step: Any, length: Any) -> tuple[Any, Any, Any]:
    """Return the first element of a slice, its step, and how many it has; -1 if the step is 0."""
    forwards, none = step > 0, integer(0)
    first = start + tirx.Select(start < 0, length, none)
    last = end + tirx.Select(end < 0, length, none)
    most = tirx.Select(forwards, length, length - 1)
    first = tirx.min(tirx.max(first, none), most)
    last = tirx.min(tirx.max(last, tirx.Select(forwards, none, integer(-1))), most)
    span = tirx.Select(forwards, last - first, first - last)
    # The least integer has no opposite.
    stride = tirx.max(tirx.Select(forwards, step, -tirx.max(step, integer(-(2**62)))), 1)
    many = tirx.Select(span > 0, tirx.truncdiv(span - 1, stride) + 1, none)
    return first, step, tirx.Select(step == 0, integer(-1), many)


def _split(node: Node) -> list[relax.Expr] | None:
    x, dims = node.tensor(0), node.shape(0)
    axis = node.axis(node.attributes.get("axis", 0), len(dims))
    length, parts = plain(dims[axis]), _parts(node, plain(dims[axis]))
    if all(isinstance(part, int) and part > 0 for part in [*parts, length]):
        return None
    over = simplified(expression(total(list(map(expression, parts)))) - expression(length))
    if not isinstance(over, int) or over:
        node.require(Limit(size(over), 0, 0, f"the parts of Split {node.name} are not as long as its input"))
    results, begin = list[relax.Expr](), integer(0)
    for part in parts:
        shape = [part if i == axis else d for i, d in enumerate(dims)]
        results.append(_cut_part(node, x, axis, begin, shape))
        begin = begin + expression(part)
    return results


def _parts(node: Node, length: Dim) -> list[Dim]:
    """Return the lengths of the parts of an axis."""
    if node.has(1):
        return [plain(d) for d in node.sizes(1).ravel()]
    if "split" in node.attributes:
        return list(node.attributes["split"])
    count = len(node.outputs)
    # The last one is shorter where they cannot be equal.
    each = simplified(tirx.floordiv(expression(length) + (count - 1), expression(count)))
    return [each] * (count - 1) + [simplified(expression(length) - expression(each) * (count - 1))]


CONVERTERS: Mapping[str, Converter] = {"Slice": _slice, "Split": _split}
