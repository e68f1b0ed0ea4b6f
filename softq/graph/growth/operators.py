"""What operators do to the bounds of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx

from softq.graph.growth.sizes import ENDLESS, Size, bound, count_elements, multiply

_SUMS, _PRODUCTS = {"Add", "Sub", "Sum"}, {"Mul", "Tile"}
_HANDED_ON = {"Abs", "Cast", "Concat", "Div", "Gather", "Identity", "Max", "Min", "Mod", "Neg", "Slice", "Squeeze"} | {
    "Unsqueeze", "Reshape", "Where", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "Expand", "Transpose",
}  # fmt: skip
_STEPS = {"ConvTranspose", "MaxUnpool", "Upsample", "DepthToSpace", "SpaceToDepth", "Col2Im"}
_WINDOWS = _STEPS | {"AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool", "Pad", "QLinearConv", "CenterCropPad"}


@dataclass(frozen=True)
class At:
    """A node and what is known of its inputs.

    Attributes:
        node: The node.
        given: The bounds of the inputs that are there.
        plain: Those of its results if it does nothing special: the greatest of its inputs.
        numbers: Returns the elements of an input by its place if it is a constant, else None.
        value: Returns the greatest number that an input may be known to hold; 0 for one that is not there.
    """

    node: onnx.NodeProto
    given: Sequence[Size]
    plain: Size
    numbers: Callable[[int], Sequence[float] | None]
    value: Callable[[int], int]


def follow(
    node: onnx.NodeProto,
    given: Sequence[Size],
    numbers: Callable[[int], Sequence[float] | None],
    value: Callable[[int], int],
) -> Size:
    """Return the bounds of what a node of the default domain without bodies computes; for the arguments see `At`."""
    operator = node.op_type
    if not given:
        ints = [n for a in node.attribute for n in (*a.ints, len(a.ints), len(a.floats), abs(a.i))]
        rank = int(any(len(a.ints) or len(a.floats) for a in node.attribute))
        length = max(ints, default=0)
        return Size(rank, max(1, rank), length if rank else 0, length, length)
    low, high, least, dim, _ = map(max, zip(*given, strict=True))
    plain, places = Size(low, high, least, dim), range(len(node.input))
    if operator in _SUMS:
        plain = plain._replace(value=bound(sum(map(value, places))))
    elif operator in _PRODUCTS:
        plain = plain._replace(value=multiply(map(value, places)))
    elif operator in _HANDED_ON:
        plain = plain._replace(value=max(map(value, places)))
    rule = _RULES.get(operator)
    if rule is not None:
        return rule(At(node, given, plain, numbers, value))
    if operator.startswith(("Reduce", "Arg")) and any(a.name == "keepdims" and a.i == 0 for a in node.attribute):
        return plain._replace(low=0, least=0)
    return _window(At(node, given, plain, numbers, value)) if operator in _WINDOWS else plain


def _window(at: At) -> Size:
    ints = [abs(n) for a in at.node.attribute for n in (*a.ints, a.i)]
    ints += [int(n) + 1 for a in at.node.attribute for n in a.floats if abs(n) < ENDLESS]
    held = sum(map(at.value, range(1, len(at.node.input)))) + sum(size.dim for size in at.given[1:])
    steps = max([*ints, 1]) ** 2 if at.node.op_type in _STEPS else 1
    return at.plain._replace(dim=bound(at.plain.dim * steps + sum(ints) + held))


def _shape(at: At) -> Size:
    low, high, dim = at.plain.low, at.plain.high, at.plain.dim
    ends = {a.name: a.i for a in at.node.attribute if a.name in ("start", "end")}
    if ends and low == high:
        low = high = len(range(high)[ends.get("start", 0) : ends.get("end")])
    return Size(1, 1, 0 if low < high and ends else low, high, dim)


def _size(at: At) -> Size:
    return Size(value=count_elements(at.plain))


def _reshape(at: At) -> Size:
    numbers: Sequence[float] | None = [n for a in at.node.attribute if a.name == "shape" for n in a.ints] or None
    numbers = at.numbers(1) if numbers is None else numbers
    if numbers is None:
        target = at.given[-1]
        dim = max(at.given[0].dim, at.value(len(at.node.input) - 1), count_elements(at.given[0]))
        return at.plain._replace(low=target.least, high=target.dim, least=0, dim=dim)
    rest = count_elements(at.given[0]) if -1 in numbers else 0
    dim = max(rest, int(max(numbers, default=0)), at.given[0].dim if 0 in numbers else 0)
    rank = len(numbers)
    return at.plain._replace(low=rank, high=rank, least=at.plain.least if rank == 1 else 0, dim=dim)


def _flatten(at: At) -> Size:
    return Size(2, 2, 0, count_elements(at.plain))


def _squeeze(at: At) -> Size:
    first, axes = at.given[0], _count_axes(at)
    if axes is None:
        return first._replace(low=0, least=0, value=at.plain.value)
    low, high = max(0, first.low - axes), max(0, first.high - axes)
    return first._replace(low=low, high=high, least=0, value=at.plain.value)


def _unsqueeze(at: At) -> Size:
    first, axes = at.given[0], _count_axes(at)
    more = at.given[1].dim if axes is None and len(at.given) > 1 else axes or 0
    return Size(first.low + (axes or 0), first.high + more, int(first.high == 0), max(first.dim, 1), at.plain.value)


def _count_axes(at: At) -> int | None:
    """Return how many axes a node names, None if that is not known."""
    counts = [len(a.ints) for a in at.node.attribute if a.name == "axes"]
    numbers = at.numbers(1) if not counts else None
    return counts[0] if counts else None if numbers is None else len(numbers)


def _gather(at: At) -> Size:
    data, places = at.given[0], at.given[-1]
    low, high = max(0, data.low + places.low - 1), max(0, data.high + places.high - 1)
    return Size(low, high, places.least if data.high == 1 else 0, at.plain.dim, at.plain.value)


def _gather_nd(at: At) -> Size:
    return Size(0, sum(size.high for size in at.given), 0, at.plain.dim)


def _concat(at: At) -> Size:
    dim, least = bound(sum(size.dim for size in at.given)), bound(sum(size.least for size in at.given))
    return at.plain._replace(least=least, dim=dim)


def _range(at: At) -> Size:
    numbers = [at.numbers(place) for place in range(3)]
    if all(n for n in numbers):
        first, last, step = (n[0] for n in numbers if n)
        length = bound(int(max(0.0, (last - first) / step)) + 1) if step else 0
    else:
        length = bound(sum(map(at.value, range(len(at.node.input)))))
    return Size(1, 1, 0, length)


def _constant_of_shape(at: At) -> Size:
    return Size(at.given[0].least, at.given[0].dim, 0, at.value(0))


def _expand(at: At) -> Size:
    first, shape = at.given[0], at.given[-1]
    dim = max(first.dim, at.value(len(at.node.input) - 1))
    return Size(max(first.low, shape.least), max(first.high, shape.dim), first.least, dim, at.plain.value)


def _tile(at: At) -> Size:
    times = max(map(at.value, range(1, len(at.node.input))), default=1)
    return at.given[0]._replace(least=0, dim=bound(at.given[0].dim * max(1, times)))


def _resize(at: At) -> Size:
    held = [abs(n) for place in range(1, len(at.node.input)) for n in at.numbers(place) or ()]
    held += map(at.value, range(1, len(at.node.input)))
    most = int(max(held, default=1)) + 1
    return at.given[0]._replace(dim=bound(at.given[0].dim * most + most))


def _one_hot(at: At) -> Size:
    deep = at.value(1)
    return Size(at.given[0].low + 1, at.given[0].high + 1, 0, max(at.given[0].dim, deep))


def _matmul(at: At) -> Size:
    return at.plain if min(size.low for size in at.given) > 1 else at.plain._replace(low=0, least=0)


def _gemm(at: At) -> Size:
    return at.plain._replace(low=2, high=2)


def _einsum(at: At) -> Size:
    letters = max((len(a.s) for a in at.node.attribute), default=0)
    return Size(0, letters + at.plain.high, 0, at.plain.dim)


def _compress(at: At) -> Size:
    return at.plain._replace(low=0, high=max(1, at.plain.high), least=0, dim=count_elements(at.given[0]))


_RULES: dict[str, Callable[[At], Size]] = {
    "Shape": _shape,
    "Size": _size,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Concat": _concat,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Tile": _tile,
    "Resize": _resize,
    "OneHot": _one_hot,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Compress": _compress,
    "Unique": _compress,
}
