"""Arithmetic on sizes while importing: the operators that exported models compute shapes with.

Each function takes the inputs of a node as arrays of sizes (numbers, or TVM expressions over the dimensions of the
model's inputs) and returns its outputs as such arrays, or None where the result cannot be known before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import tirx

from softq.compiler.tir.symbolic import Dim, expression, plain, product, quotient, simplified

Sizes: TypeAlias = NDArray[np.object_]
"""Sizes as an array of any rank; elements are `Dim`."""

LARGEST = 64
"""Arrays of more elements are data, not shapes."""

Attributes: TypeAlias = Mapping[str, Any]
Folder: TypeAlias = Callable[[Sequence[Sizes], Attributes], "Sizes | None"]


def sizes(values: Any, shape: Sequence[int] | None = None) -> Sizes:
    """Return an array of sizes with these elements."""
    flat = [plain(v) if not isinstance(v, (int, np.integer)) else int(v) for v in np.ravel(np.array(values, object))]
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(np.shape(values) if shape is None else tuple(shape))


def static(values: Sizes) -> NDArray[np.int64] | None:
    """Return the sizes as integers, or None if one is an expression."""
    if all(isinstance(v, int) for v in values.ravel()):
        return np.array(values.tolist(), np.int64).reshape(values.shape)
    return None


def _elementwise(function: Callable[[Dim, Dim], Dim | None]) -> Folder:
    def fold(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
        result = inputs[0]
        for other in inputs[1:]:
            a, b = np.broadcast_arrays(result, other)
            values = [function(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
            if any(v is None for v in values):
                return None
            result = sizes(values, a.shape)
        return result

    return fold


def _divide(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b) if b else 0  # towards zero
    return quotient([a], [b])


def _fold_integers(fold: Callable[[int, int], int], expr: Callable[[Any, Any], Any]) -> Folder:
    """Return the folder of a function that Python has for integers and TVM for expressions."""
    return _elementwise(
        lambda a, b: (
            fold(a, b) if isinstance(a, int) and isinstance(b, int) else simplified(expr(expression(a), expression(b)))
        )
    )


def _equal(a: Dim, b: Dim) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int):
        return int(a == b)
    difference = simplified(expression(a) - expression(b))
    if isinstance(difference, int):
        return int(difference == 0)
    analyzer = tvm.sym.Analyzer()
    for var in tirx.analysis.undefined_vars(tirx.Evaluate(difference)):
        analyzer.update(var, tvm.sym.ConstIntBound(0, 1 << 40))
    bound = analyzer.const_int_bound(difference)
    return 0 if bound.min_value > 0 or bound.max_value < 0 else None


def _where(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    chosen, a, b = np.broadcast_arrays(*inputs)
    if static(chosen) is None:
        return None
    return sizes([x if c else y for c, x, y in zip(chosen.ravel(), a.ravel(), b.ravel(), strict=True)], chosen.shape)


def _gather(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    at = static(inputs[1])
    return None if at is None else sizes_of(np.take(inputs[0], at, axis=attributes.get("axis", 0)))


def _slice(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    given = [static(x) for x in inputs[1:]]
    if any(x is None for x in given):
        return None
    starts, ends = given[0], given[1]
    assert starts is not None
    assert ends is not None
    axes = given[2] if len(given) > 2 and given[2] is not None else np.arange(len(starts))
    steps = given[3] if len(given) > 3 and given[3] is not None else np.ones(len(starts), np.int64)
    index: list[slice] = [slice(None)] * inputs[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # The least integer means "past the beginning" where the step is negative.
        index[int(axis)] = slice(int(start), None if step < 0 and end < -(1 << 31) else int(end), int(step))
    return inputs[0][tuple(index)]


def _concat(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    return np.concatenate(list(inputs), axis=attributes["axis"])


def _unsqueeze(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    axes = static(inputs[1]) if len(inputs) > 1 else np.array(attributes["axes"])
    return None if axes is None else np.expand_dims(inputs[0], tuple(int(a) for a in axes))


def _squeeze(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    if len(inputs) < 2 and "axes" not in attributes:
        return np.squeeze(inputs[0])
    axes = static(inputs[1]) if len(inputs) > 1 else np.array(attributes["axes"])
    return None if axes is None else sizes_of(np.squeeze(inputs[0], tuple(int(a) for a in axes)))


def _reshape(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    shape = static(inputs[1])
    return None if shape is None or 0 in shape else inputs[0].reshape(tuple(int(d) for d in shape))


def _reduce_prod(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    if len(inputs) > 1 or inputs[0].ndim > 1:
        return None
    return sizes([product(inputs[0].ravel())], (1,) if attributes.get("keepdims", 1) else ())


def _constant_of_shape(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    shape, value = static(inputs[0]), attributes.get("value")
    if shape is None or np.prod(shape) > LARGEST or value is None or value.dtype.kind not in "iub":
        return None
    return sizes(np.full(tuple(shape), int(value.ravel()[0]), object))


def _range(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    given = [static(x) for x in inputs]
    if any(x is None for x in given):
        return None
    start, limit, delta = (int(x) for x in given if x is not None)
    values = np.arange(start, limit, delta)
    return sizes(values) if values.size <= LARGEST else None


def _expand(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    shape = static(inputs[1])
    if shape is None:
        return None
    full = np.broadcast_shapes(inputs[0].shape, tuple(int(d) for d in shape))
    return np.broadcast_to(inputs[0], full) if np.prod(full) <= LARGEST else None


def _same(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    return inputs[0]


def sizes_of(value: object) -> Sizes:
    """Return what NumPy made of an array of sizes (a bare element, if it has no axes) as an array."""
    return value if isinstance(value, np.ndarray) else sizes(value, ())


FOLDERS: Mapping[str, Folder] = {
    "Add": _elementwise(lambda a, b: plain(simplified(a + b))),
    "Sub": _elementwise(lambda a, b: plain(simplified(a - b))),
    "Mul": _elementwise(lambda a, b: product([a, b])),
    "Div": _elementwise(_divide),
    "Mod": _fold_integers(lambda a, b: a % b if b else 0, tirx.floormod),
    "Min": _fold_integers(min, tirx.min),
    "Max": _fold_integers(max, tirx.max),
    "Equal": _elementwise(_equal),
    "Where": _where,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "ReduceProd": _reduce_prod,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Expand": _expand,
    "Identity": _same,
    "CastLike": _same,
}
"""By operator. `Cast` is not here: whether it stays a size depends on the type; nor are `Shape` and `Size`."""
