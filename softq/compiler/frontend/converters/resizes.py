"""Resize: an axis after the other, from tables of which elements make one of the result, and with which weights.

Coordinates, weights and lengths are computed in float32, by the formulas of ONNX's specification in the order of
onnxruntime's kernels, so that what is rounded to the nearest element is rounded alike. A result of integers is cut off.
The tables are tensors of their own: within the loop over the result each element would cost a division.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.artifact.program import Limit
from softq.compiler.frontend.converters.shapes import repeated, reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.parameters import emit, integer, table
from softq.compiler.frontend.resizing import Axis, coordinate, kernel, nearest, repeats
from softq.compiler.tir.symbolic import Dim, equal, expression, plain, simplified, size
from softq.errors import RefusalError

_REACH = {"linear": 1, "cubic": 2}
"""How far from an element the others are that have a part in it."""


def _resize(node: Node) -> list[relax.Expr]:
    if node.opset < 11:
        raise RefusalError(f"Resize {node.name!r} of operator set {node.opset}; raise the model to opset 18")
    dims, mode = [plain(d) for d in node.shape(0)], str(node.attributes.get("mode", "nearest"))
    form = str(node.attributes.get("coordinate_transformation_mode", "half_pixel"))
    axes = [node.axis(a, len(dims)) for a in node.attributes.get("axes") or range(len(dims))]
    after, scales, known = _lengths(node, [dims[a] for a in axes])
    crops = form == "tf_crop_and_resize"
    roi = _floats(node, 1) if crops else scales
    chosen = [
        Axis(axis, place, dims[axis], new, scale)
        for place, (axis, new, scale) in enumerate(zip(axes, after, known, strict=True))
        if crops or not (scale == 1 or (scale is None and equal(dims[axis], new)))
    ]
    x = node.tensor(0)
    dtype = str(x.ty.dtype)
    if dtype == "bool":
        raise RefusalError(f"Resize {node.name!r} of bool has no kernel")
    rounding = str(node.attributes.get("nearest_mode", "round_prefer_floor"))
    if mode == "nearest" and repeats(form, rounding, [axis.factor for axis in chosen]):
        return [repeated(node, x, {axis.number: int(axis.factor or 1) for axis in chosen})]
    where = [_coordinates(node, axis, form, scales, roi, len(axes)) for axis in chosen]
    if mode == "nearest":
        x = _take_nearest(node, x, rounding, chosen, where)
    elif mode in _REACH:
        if chosen and dtype not in ("float32", "float64"):
            x = node.emit(relax.op.astype(x, "float32"))
        for axis, coordinates in zip(chosen, where, strict=True):
            x = _weighted(node, x, axis, coordinates, mode, scales)
    else:
        raise RefusalError(f"Resize {node.name!r} has the mode {mode}, which has no kernel")
    if crops:
        x = _filled_outside(node, x, chosen, where)
    return [x if str(x.ty.dtype) == dtype else node.emit(relax.op.astype(x, dtype))]


def _floats(node: Node, position: int) -> relax.Expr:
    x = node.tensor(position)
    return x if str(x.ty.dtype) == "float32" else node.emit(relax.op.astype(x, "float32"))


def _lengths(node: Node, before: Sequence[Dim]) -> tuple[list[Dim], relax.Expr, list[float | None]]:
    """Return the new lengths of the axes, their scales as a tensor, and as numbers where they are known."""
    if node.has(3) and node.inputs[3]:
        return _of_sizes(node, before)
    scales, numbers = _floats(node, 2), node.array(2)
    if numbers is None:
        return _measured(node, scales, before), scales, [None] * len(before)
    known = [float(s) for s in numbers.astype(np.float32).ravel()]
    return [_scaled(node, d, s) for d, s in zip(before, known, strict=True)], scales, list(known)


def _scaled(node: Node, length: Dim, scale: float) -> Dim:
    part, whole = Fraction(scale), _is_whole(node)
    if isinstance(length, int):
        product = np.float32(length) * np.float32(scale)
        if whole and product != np.floor(product):
            what = f"align_corners from {length} by {scale:g} is {product:g} elements to ONNX's tests"
            raise RefusalError(f"Resize {node.name!r}: {what} and {int(product)} to onnxruntime; give sizes")
        return int(np.floor(product))
    if part.numerator < 1 << 10 and not (whole and part.denominator > 1):  # The product is exact for every length.
        several = expression(length) * part.numerator
        return simplified(tirx.floordiv(several, expression(part.denominator)))
    # Whether it is rounded up to a whole number only float32 tells.
    return _measured(node, constant(np.array([scale], np.float32)), [length])[0]


def _is_whole(node: Node) -> bool:
    """Say whether lengths must be whole before they are cut off: ONNX's tests and onnxruntime differ where not."""
    return node.attributes.get("coordinate_transformation_mode") == "align_corners"


def _measured(node: Node, scales: relax.Expr, before: Sequence[Dim]) -> list[Dim]:
    """Return the new lengths for scales; one that must be whole and is not ends the run."""
    exact = _is_whole(node)

    def length(place: int) -> Callable[[Any, Any], Any]:
        def element(factors: Any, lengths: Any) -> Any:
            product = factors[place] * lengths[place].astype("float32")
            below = tirx.floor(product)
            return tirx.Select(below < product, tirx.const(-1, "float32"), below) if exact else below

        return element

    return list(node.importer.measure(table(node, "lengths", [length(i) for i in range(len(before))], scales, before)))


def _of_sizes(node: Node, before: Sequence[Dim]) -> tuple[list[Dim], relax.Expr, list[float | None]]:
    """Return the same where the new lengths are given."""
    wanted = [plain(d) for d in node.sizes(3).ravel()]
    policy, count = str(node.attributes.get("keep_aspect_ratio_policy", "stretch")), len(before)
    for length, new in zip(before, wanted, strict=True):
        if not isinstance(length, int) and not equal(length, new):
            node.require(Limit(size(length), 1, 2**40, f"Resize {node.name} has nothing to resize"))

    def ratio(place: int) -> Callable[[Any, Any], Any]:
        def element(given: Any, there: Any) -> Any:
            every = [g.astype("float32") / d.astype("float32") for g, d in zip(given, there, strict=True)]
            if policy == "stretch":
                return every[place]
            result = every[0]
            for other in every[1:]:
                result = (tirx.min if policy == "not_larger" else tirx.max)(result, other)
            return result

        return element

    scales = table(node, "scales", [ratio(i) for i in range(count)], wanted, before, dtype="float32")
    if policy == "stretch":
        return wanted, scales, [None] * count
    rows = [
        lambda s, d, i=i: tirx.floor(s[i] * d[i].astype("float32") + tirx.const(0.5, "float32")) for i in range(count)
    ]
    return list(node.importer.measure(table(node, "lengths", rows, scales, before))), scales, [None] * count


def _coordinates(node: Node, axis: Axis, form: str, scales: relax.Expr, roi: relax.Expr, count: int) -> relax.Expr:
    """Return the place in the tensor of each element along an axis of the result, float32."""

    def compute(factors: Any, region: Any, lengths: Any) -> Any:
        def element(at: Any, _: Any) -> Any:
            ends = region[axis.place], region[count + axis.place]
            return coordinate(form, at, factors[axis.place], lengths[0], lengths[1], ends)

        return te.compute([lengths[1], integer(1)], element, name="coordinates")

    if form != "tf_crop_and_resize":
        roi = constant(np.zeros(2 * count, np.float32))
    made = emit(node, "coordinates", compute, scales, roi, [axis.before, axis.after])
    return reshape(node, made, [axis.after])


def _take_nearest(
    node: Node, x: relax.Expr, rounding: str, axes: Sequence[Axis], where: Sequence[relax.Expr]
) -> relax.Expr:
    places: list[relax.Expr] = []
    for axis, coordinates in zip(axes, where, strict=True):

        def compute(given: Any, lengths: Any) -> Any:
            def element(at: Any, _: Any) -> Any:
                return tirx.min(tirx.max(nearest(rounding, given[at]).astype("int64"), integer(0)), lengths[0] - 1)

            return te.compute([lengths[1], integer(1)], element, name="nearest")

        made = emit(node, "nearest", compute, coordinates, [axis.before, axis.after])
        places.append(reshape(node, made, [axis.after]))
    if not places:
        return x
    shape = _after(node, x, axes)

    def take(values: Any, lengths: Any, *tables: Any) -> Any:
        by_axis = {axis.number: there for axis, there in zip(axes, tables, strict=True)}

        def element(*at: Any) -> Any:
            return values[tuple(by_axis[n][i] if n in by_axis else i for n, i in enumerate(at))]

        return te.compute(lengths, element, name="resized")

    return emit(node, "resized", take, x, shape, *places)


def _after(node: Node, x: relax.Expr, axes: Sequence[Axis]) -> list[Dim]:
    new = {axis.number: axis.after for axis in axes}
    return [new.get(i, d) for i, d in enumerate(node.importer.dims(x, node.name))]


def _weighted(
    node: Node, x: relax.Expr, axis: Axis, coordinates: relax.Expr, mode: str, scales: relax.Expr
) -> relax.Expr:
    """Return a tensor resized along an axis by sums of elements with weights."""
    smooths, outside = bool(node.attributes.get("antialias", 0)), bool(node.attributes.get("exclude_outside", 0))
    reach, taps = _REACH[mode], _taps(node, axis, scales, _REACH[mode], smooths)
    slope = float(node.attributes.get("cubic_coeff_a", -0.75))
    dtype = str(x.ty.dtype)

    def weights(given: Any, factors: Any, lengths: Any) -> Any:
        before, after, count = lengths

        def element(at: Any, tap: Any) -> Any:
            place = tirx.floor(given[at])
            step = tap + 1 - tirx.floordiv(count, integer(2))
            factor = tirx.min(factors[axis.place], tirx.const(1, "float32")) if smooths else tirx.const(1, "float32")
            value = kernel(reach, (step.astype("float32") - (given[at] - place)) * factor, slope)
            there = place.astype("int64") + step
            inside = tirx.And(there >= 0, there < before)
            return tirx.Select(inside, value, tirx.const(0, "float32")) if outside else value

        return te.compute([after, count], element, name="weights")

    made = emit(node, "weights", weights, coordinates, scales, [axis.before, axis.after, taps])
    if smooths or outside:
        made = node.emit(relax.op.divide(made, node.emit(relax.op.sum(made, [1], True))))
    flat = reshape(node, made, [expression(axis.after) * taps])

    def compute(values: Any, factors: Any, given: Any, shape: Any, lengths: Any) -> Any:
        before, count = lengths

        def part(at: Any, tap: Any) -> Any:
            there = tirx.floor(given[at[axis.number]]).astype("int64") + (tap + 1 - tirx.floordiv(count, integer(2)))
            there = tirx.min(tirx.max(there, integer(0)), before - 1)
            value = values[tuple(there if n == axis.number else i for n, i in enumerate(at))]
            return value * factors[at[axis.number] * count + tap].astype(dtype)

        if isinstance(plain(taps), int) and plain(taps) <= 4:

            def element(*at: Any) -> Any:
                result = part(at, integer(0))
                for tap in range(1, int(plain(taps))):
                    result = result + part(at, integer(tap))
                return result

            return te.compute(shape, element, name="resized")
        k = te.reduce_axis((integer(0), count), "k")
        return te.compute(shape, lambda *at: te.sum(part(at, k), axis=k), name="resized")

    return emit(node, "resized", compute, x, flat, coordinates, _after(node, x, [axis]), [axis.before, taps])


def _taps(node: Node, axis: Axis, scales: relax.Expr, reach: int, smooths: bool) -> Dim:
    """Return how many elements make one of the result."""
    if not smooths:
        return 2 * reach
    if axis.factor is not None:
        return -2 * floor(-reach / min(np.float32(axis.factor), np.float32(1)))
    one = tirx.const(1, "float32")
    rows = [
        lambda s: tirx.floor(tirx.const(-reach, "float32") / tirx.min(s[axis.place], one)) * tirx.const(-2, "float32")
    ]
    return node.importer.measure(table(node, "taps", rows, scales))[0]


def _filled_outside(node: Node, x: relax.Expr, axes: Sequence[Axis], where: Sequence[relax.Expr]) -> relax.Expr:
    """Return a tensor with a value in the places that lie outside of what was resized."""
    value = float(node.attributes.get("extrapolation_value", 0.0))

    def compute(values: Any, lengths: Any, *tables: Any) -> Any:
        def element(*at: Any) -> Any:
            checks: list[Any] = []
            for axis, there, length in zip(axes, tables, lengths, strict=True):
                place = there[at[axis.number]]
                checks += [place >= tirx.const(0, "float32"), place <= (length - 1).astype("float32")]
            return tirx.Select(tirx.all(*checks), values[at], tirx.const(value, values.dtype))

        return te.compute(values.shape, element, name="filled")

    return emit(node, "filled", compute, x, [axis.before for axis in axes], *where)


CONVERTERS: Mapping[str, Converter] = {"Resize": _resize}
