"""Discrete Fourier transforms as sums over tables of sines and cosines, of time N^2."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.frontend.converters.selections import compute
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.converters.sorting import permute
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.parameters import flat_numbers, integer, known_numbers, table, total
from softq.compiler.tir.symbolic import Dim, expression, plain, product, simplified

_TERMS = 10
"""Terms of the series of sine and cosine: the next one is below 2^-53 for angles of at most pi / 4."""


def _circle(cosine: bool, length: Any) -> Any:
    """Return cos or sin of 2 pi m / length for each m below it, in float64: TVM has none without a C library."""

    def element(m: Any) -> Any:
        # The nearest quarter turn is taken off in integers, so that what is 0 is 0.
        quarters = tirx.floordiv(m * 8 + length, length * 2)
        quotient = tirx.Cast("float64", m * 4 - quarters * length) / tirx.Cast("float64", length)
        angle = quotient * tirx.const(math.pi / 2, "float64")
        square = angle * angle
        sine, even = (tirx.const((-1) ** (_TERMS - 1) / math.factorial(2 * _TERMS - odd), "float64") for odd in (1, 2))
        for i in reversed(range(_TERMS - 1)):
            sine = sine * square + tirx.const((-1) ** i / math.factorial(2 * i + 1), "float64")
            even = even * square + tirx.const((-1) ** i / math.factorial(2 * i), "float64")
        odd = sine * angle
        turn = tirx.floormod(quarters + (0 if cosine else 3), 4)
        value = tirx.Select(tirx.floormod(turn, 2) == 0, even, odd)
        negative = tirx.Or(turn == 1, turn == 2)
        return tirx.Select(negative, tirx.const(0.0, "float64") - value, value)

    return te.compute([length], element, name="cosines" if cosine else "sines")


def _transform(node: Node, x: relax.Expr, length: Dim, *, inverse: bool, onesided: bool) -> relax.Expr:
    """Return the transform of [lines, given, 1 or 2] over so many points, [lines, points or half of them, 1 or 2]."""
    dtype, half = str(x.ty.dtype), simplified(tirx.floordiv(expression(length), 2) + 1)
    real, parts = plain(x.ty.shape.values[2]) == 1, 1 if inverse and onesided else 2
    points = half if onesided and not inverse else length

    def transformed(x: Any, length: Any, points: Any) -> Any:
        k = te.reduce_axis((0, length), "k")
        zero = tirx.const(0, "float64")
        cosines, sines = _circle(True, length), _circle(False, length)

        def element(line: Any, j: Any, part: Any) -> Any:
            # The second half of what half a spectrum stands for is the first one's conjugate, backwards.
            mirrored = tirx.And(k * 2 > length, inverse and onesided)
            at = tirx.Select(mirrored, length - k, k)
            there = at < x.shape[1]
            a = tirx.if_then_else(there, x[line, at, 0].astype("float64"), zero)
            b = zero if real else tirx.if_then_else(there, x[line, at, 1].astype("float64"), zero)
            b = tirx.Select(mirrored, zero - b, b)
            angle = tirx.floormod(j * k, length)
            cosine, sine = cosines[angle], sines[angle] if inverse else zero - sines[angle]
            return te.sum(tirx.Select(part == 0, a * cosine - b * sine, a * sine + b * cosine), axis=k)

        shape = [x.shape[0], points, parts]
        result = te.compute(shape, element, name="transformed")
        scale = tirx.Cast("float64", length if inverse else tirx.IntImm("int64", 1))
        return te.compute(shape, lambda *at: (result[at] / scale).astype(dtype), name="rounded")

    return compute(node, "transformed", transformed, x, expression(length), expression(points))


def _dft(node: Node) -> list[relax.Expr]:
    dims = [plain(d) for d in node.shape(0)]
    known = known_numbers(node, 2) if node.has(2) else None
    if node.has(2) and known is None:
        return [_along(node, dims, flat_numbers(node, 2))]
    given = node.attributes.get("axis", 1 if node.opset < 20 else -2) if known is None else int(known[0])
    axis = node.axis(given, len(dims))
    front, rest = [product(dims[:axis]), dims[axis], product(dims[axis + 1 : -1])], dims[-1]
    y = _middle(node, reshape(node, node.tensor(0), [*front, rest]), front)
    points, parts = list(y.ty.shape.values)[1::2]
    return [reshape(node, y, [*dims[:axis], points, *dims[axis + 1 : -1], parts])]


def _along(node: Node, dims: list[Dim], given: relax.Expr) -> relax.Expr:
    """Return the transform along an axis that the run decides; one that is none ends the run."""
    rank = len(dims)

    def axis(given: Any) -> Any:
        return given[0] + tirx.Select(given[0] < 0, integer(rank), integer(0))

    def before(given: Any, lengths: Any) -> Any:
        inside = tirx.And(axis(given) >= 0, axis(given) < rank - 1)
        found = product(tirx.Select(axis(given) > i, lengths[i], integer(1)) for i in range(rank - 1))
        return tirx.Select(inside, found, integer(-1))

    def at(given: Any, lengths: Any) -> Any:
        return total([tirx.Select(axis(given) == i, lengths[i], integer(0)) for i in range(rank - 1)])

    def after(given: Any, lengths: Any) -> Any:
        return product(tirx.Select(axis(given) < i, lengths[i], integer(1)) for i in range(rank - 1))

    front = node.importer.measure(table(node, "front", [before, at, after], given, dims))
    y = _middle(node, reshape(node, node.tensor(0), [*front, dims[-1]]), front)
    points, parts = list(y.ty.shape.values)[1::2]

    def length(i: int) -> Callable[..., Any]:
        return lambda given, lengths, points: tirx.Select(axis(given) == i, points[0], lengths[i])

    shape = table(node, "shape", [length(i) for i in range(rank - 1)], given, dims, [points])
    return reshape(node, y, [*node.importer.measure(shape), parts])


def _middle(node: Node, x: relax.Expr, front: Sequence[Dim]) -> relax.Expr:
    """Return the transform of [before, points, after, 1 or 2] along the points."""
    inverse, onesided = (bool(node.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    before, length, after = front
    parts = x.ty.shape.values[3]
    lines = reshape(node, permute(node, x, [0, 2, 1, 3]), [product([before, after]), length, parts])
    if node.has(1):
        length = plain(node.sizes(1).ravel()[0])
    elif inverse and onesided:
        length = simplified((expression(length) - 1) * 2)
    y = _transform(node, lines, length, inverse=inverse, onesided=onesided)
    y = reshape(node, y, [before, after, *list(y.ty.shape.values)[1:]])
    return permute(node, y, [0, 2, 1, 3])


def _stft(node: Node) -> list[relax.Expr]:
    x, dims = node.tensor(0), [plain(d) for d in node.shape(0)]
    if len(dims) == 2:
        dims.append(1)
        x = reshape(node, x, dims)
    (step,) = node.sizes(1).ravel().tolist()
    length: Dim = plain(node.sizes(3).ravel()[0]) if node.has(3) else plain(node.shape(2)[0])
    window = [node.tensor(2)] if node.has(2) else []
    count = simplified(tirx.floordiv(expression(dims[1]) - expression(length), expression(step)) + 1)

    def frames(x: Any, *given: Any) -> Any:
        *window, step, count, length = given

        def element(line: Any, i: Any, part: Any) -> Any:
            frame = tirx.floormod(line, count) * step + i
            value = x[tirx.floordiv(line, count), frame, part]
            return value * window[0][i] if window else value

        return te.compute([x.shape[0] * count, length, x.shape[2]], element, name="frames")

    sizes = [expression(d) for d in (step, count, length)]
    cut = compute(node, "frames", frames, x, *window, *sizes)
    y = _transform(node, cut, length, inverse=False, onesided=bool(node.attributes.get("onesided", 1)))
    return [reshape(node, y, [dims[0], count, *list(y.ty.shape.values)[1:]])]


CONVERTERS: Mapping[str, Converter] = {"DFT": _dft, "STFT": _stft}
