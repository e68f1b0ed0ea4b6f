"""Arithmetic on sizes while importing: the operators that exported models compute shapes with.

Each function takes the inputs of a node as arrays of sizes (numbers, or TVM expressions over the dimensions of the
model's inputs) and returns its output as such an array; `_UnknownError` says that it cannot be known before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray
from tvm import tirx

from softq.compiler.tir.symbolic import Dim, expression, plain, product, quotient, simplified

Sizes: TypeAlias = NDArray[np.object_]
"""Sizes as an array of any rank; elements are `Dim`."""

LARGEST = 64
"""Arrays of more elements are data, not shapes."""

Attributes: TypeAlias = Mapping[str, Any]
Folder: TypeAlias = Callable[[Sequence[Sizes], Attributes], Any]

CASTS = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.INT32: "int32", onnx.TensorProto.BOOL: "bool"}
"""The types that sizes may be cast to."""


class _UnknownError(Exception):
    pass


def fold(operator: str, inputs: Sequence[Sizes], attributes: Attributes) -> Sizes | None:
    """Return the result of an operator of `FOLDERS`, or None if it is not known before the run, or is no shape."""
    try:
        result = FOLDERS[operator](inputs, attributes)
    except _UnknownError:
        return None
    # NumPy gives a bare element for an array without axes.
    result = result if isinstance(result, np.ndarray) else sizes(result, ())
    return result if result.size <= LARGEST else None


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


def _numbers(values: Sizes) -> NDArray[np.int64]:
    numbers = static(values)
    if numbers is None:
        raise _UnknownError
    return numbers


def _elementwise(of_dims: Callable[[Dim, Dim], Dim], of_integers: Callable[[int, int], int] | None = None) -> Folder:
    """Return the folder of a function of two sizes, which may be another one where both are integers."""

    def compute(a: Dim, b: Dim) -> Dim:
        return of_integers(a, b) if of_integers and isinstance(a, int) and isinstance(b, int) else of_dims(a, b)

    def fold(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
        result = inputs[0]
        for other in inputs[1:]:
            a, b = np.broadcast_arrays(result, other)
            result = sizes([compute(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True)], a.shape)
        return result

    return fold


def _of_expressions(function: Callable[[Any, Any], Any]) -> Callable[[Dim, Dim], Dim]:
    return lambda a, b: simplified(function(expression(a), expression(b)))


def _over(a: int, b: int) -> int:
    if not b:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # towards zero


def _rest(a: Dim, b: Dim) -> Dim:
    # TVM refuses to divide by a 0 that it sees.
    return 0 if isinstance(b, int) and b == 0 else _of_expressions(tirx.floormod)(a, b)


def _equal(a: Dim, b: Dim) -> Dim:
    difference = simplified(expression(a) - expression(b))
    if isinstance(difference, int):
        return int(difference == 0)
    analyzer = tvm.sym.Analyzer()
    for var in tirx.analysis.undefined_vars(tirx.Evaluate(difference)):
        analyzer.update(var, tvm.sym.ConstIntBound(0, 1 << 40))
    bound = analyzer.const_int_bound(difference)
    if bound.min_value <= 0 <= bound.max_value:
        raise _UnknownError
    return 0


def _cast(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    if attributes["to"] not in CASTS:
        raise _UnknownError
    return sizes((_numbers(inputs[0]) != 0).astype(int)) if attributes["to"] == onnx.TensorProto.BOOL else inputs[0]


def _where(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    chosen, a, b = np.broadcast_arrays(_numbers(inputs[0]), *inputs[1:])
    return np.where(chosen, a, b)


def _slice(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    starts, ends, *rest = map(_numbers, inputs[1:])
    axes = rest[0] if rest else range(len(starts))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    index: list[slice] = [slice(None)] * inputs[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # The least integer means "past the beginning" where the step is negative.
        index[int(axis)] = slice(int(start), None if step < 0 and end < -(1 << 31) else int(end), int(step))
    return inputs[0][tuple(index)]


def _on_axes(function: Callable[[Sizes, tuple[int, ...] | None], Any]) -> Folder:
    """Return the folder of a function of axes that the second input or an attribute names."""

    def fold(inputs: Sequence[Sizes], attributes: Attributes) -> Any:
        axes = _numbers(inputs[1]) if len(inputs) > 1 else attributes.get("axes")
        return function(inputs[0], None if axes is None else tuple(int(a) for a in axes))

    return fold


def _reshape(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    shape = _numbers(inputs[1])
    if 0 in shape:
        raise _UnknownError
    return inputs[0].reshape(tuple(shape))


def _reduce_prod(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    if len(inputs) > 1 or inputs[0].ndim > 1:
        raise _UnknownError
    return sizes([product(inputs[0].ravel())], (1,) if attributes.get("keepdims", 1) else ())


def _constant_of_shape(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    shape, value = _numbers(inputs[0]), attributes.get("value")
    if np.prod(shape) > LARGEST or value is None or value.dtype.kind not in "iub":
        raise _UnknownError
    return sizes(np.full(tuple(shape), int(value.ravel()[0]), object))


def _range(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    values = np.arange(*(_numbers(x).item() for x in inputs))
    if values.size > LARGEST:
        raise _UnknownError
    return sizes(values)


def _expand(inputs: Sequence[Sizes], attributes: Attributes) -> Sizes:
    return np.broadcast_to(inputs[0], np.broadcast_shapes(inputs[0].shape, tuple(_numbers(inputs[1]))))


FOLDERS: Mapping[str, Folder] = {
    "Add": _elementwise(lambda a, b: plain(simplified(a + b))),
    "Sub": _elementwise(lambda a, b: plain(simplified(a - b))),
    "Mul": _elementwise(lambda a, b: product([a, b])),
    "Div": _elementwise(lambda a, b: quotient([a], [b]), _over),
    "Mod": _elementwise(_rest, lambda a, b: a % b if b else 0),
    "Min": _elementwise(_of_expressions(tirx.min), min),
    "Max": _elementwise(_of_expressions(tirx.max), max),
    "Equal": _elementwise(_equal, lambda a, b: int(a == b)),
    "Not": lambda inputs, attributes: sizes(1 - _numbers(inputs[0])),
    "Cast": _cast,
    "Where": _where,
    "Gather": lambda inputs, attributes: np.take(inputs[0], _numbers(inputs[1]), axis=attributes.get("axis", 0)),
    "Slice": _slice,
    "Concat": lambda inputs, attributes: np.concatenate(list(inputs), axis=attributes["axis"]),
    "Unsqueeze": _on_axes(np.expand_dims),
    "Squeeze": _on_axes(np.squeeze),
    "Reshape": _reshape,
    "ReduceProd": _reduce_prod,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Expand": _expand,
    "Shape": lambda inputs, attributes: inputs[0][slice(attributes.get("start", 0), attributes.get("end"))],
    "Size": lambda inputs, attributes: product(inputs[0]),
    **dict.fromkeys(("Identity", "CastLike"), lambda inputs, attributes: inputs[0]),
}
"""By operator. `Shape` and `Size` take the dimensions of their input; `Cast` gives what CASTS has."""
