"""Pad: elements before and behind those of each axis, or elements taken away where there are less than none.

As onnxruntime has it, what is taken away is gone before anything is mirrored or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.onnx_node import Array, Converter, Node, constant
from softq.compiler.frontend.parameters import count_of, emit, flat_numbers, integer, known_numbers, table, total
from softq.compiler.tir.symbolic import Dim
from softq.errors import RefusalError


def _edge(at: Any, length: Any) -> Any:
    return tirx.min(tirx.max(at, integer(0)), length - 1)


def _wrap(at: Any, length: Any) -> Any:
    return tirx.floormod(at, length)


def _reflect(at: Any, length: Any) -> Any:
    period = tirx.max((length - 1) * 2, integer(1))
    place = tirx.floormod(at, period)
    return tirx.min(place, period - place)


_PLACES: Mapping[str, Callable[[Any, Any], Any]] = {"edge": _edge, "wrap": _wrap, "reflect": _reflect}
"""By mode the element that stands at a place outside an axis."""


def _pad(node: Node) -> list[relax.Expr] | None:
    x, dims, mode = node.tensor(0), node.shape(0), str(node.attributes.get("mode", "constant"))
    pads = known_numbers(node, 1) if node.has(1) else np.array(node.attributes.get("pads", []))
    axes: Array | None = np.arange(len(dims))
    if node.has(3):
        axes = known_numbers(node, 3)
    if pads is not None and axes is not None and (mode != "wrap" or (pads >= 0).all()):
        return None
    if mode != "constant" and mode not in _PLACES:
        raise RefusalError(f"Pad {node.name!r} has the mode {mode}, which has no kernel")
    numbers = [flat_numbers(node, 1) if node.has(1) else constant(pads.astype(np.int64))]
    numbers += [flat_numbers(node, 3)] if node.has(3) else []
    count = count_of(node, numbers[-1]) if node.has(3) else len(dims)
    if count_of(node, numbers[0]) != 2 * count:
        raise RefusalError(f"Pad {node.name!r} has {count_of(node, numbers[0])} pads for {count} axes")
    return [_padded(node, x, dims, mode, numbers, count)]


def _padded(
    node: Node, x: relax.Expr, dims: Sequence[Dim], mode: str, numbers: Sequence[relax.Expr], count: int
) -> relax.Expr:
    """Return a padded tensor; `numbers` are the pads, and the axes if they are not all."""
    rank = len(dims)

    def pad(axis: int, end: int) -> Callable[..., Any]:
        def element(pads: Any, *rest: Any) -> Any:
            named = [rest[0][i] if len(numbers) > 1 else integer(i) for i in range(count)]
            hits = [tirx.Or(name == axis, name == axis - rank) for name in named]
            return total([tirx.Select(hit, pads[i + end * count], integer(0)) for i, hit in enumerate(hits)])

        return element

    before = [pad(axis, 0) for axis in range(rank)]
    both = table(node, "pads", [*before, *(pad(axis, 1) for axis in range(rank))], *numbers)

    def length(axis: int) -> Callable[..., Any]:
        def element(given: Any, lengths: Any) -> Any:
            there = lengths[axis] + tirx.min(given[axis], 0) + tirx.min(given[rank + axis], 0)
            result = there + tirx.max(given[axis], 0) + tirx.max(given[rank + axis], 0)
            # What is not there cannot be mirrored or repeated.
            nothing = tirx.And(there <= 0, result > 0) if mode != "constant" else there < 0
            return tirx.Select(nothing, integer(-1), result)

        return element

    shape = node.importer.measure(table(node, "lengths", [length(axis) for axis in range(rank)], both, dims))
    value = [node.tensor(2)] if node.has(2) and mode == "constant" else []
    own = node.attributes.get("value", 0.0)

    def compute(values: Any, given: Any, lengths: Any, *filling: Any) -> Any:
        def element(*at: Any) -> Any:
            places = [i - given[axis] for axis, i in enumerate(at)]
            if mode == "constant":
                pairs = zip(places, values.shape, strict=True)
                inside = tirx.all(*(check for i, d in pairs for check in (i >= 0, i < d)))
                fill = tirx.const(own, values.dtype)
                if filling:
                    fill = filling[0][(0,) * len(filling[0].shape)]
                return tirx.if_then_else(inside, values[tuple(places)], fill)
            found: list[Any] = []
            for axis, place in enumerate(places):
                first = tirx.max(-given[axis], integer(0))
                left = values.shape[axis] - first + tirx.min(given[rank + axis], 0)
                found.append(first + _PLACES[mode](place - first, left))
            return values[tuple(found)]

        return te.compute(lengths, element, name="padded")

    return emit(node, "padded", compute, x, both, shape, *value)


CONVERTERS: Mapping[str, Converter] = {"Pad": _pad}
