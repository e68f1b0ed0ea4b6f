"""Reductions: axes given, absent or none, or known only during the run; integers stay integers.

Sums and products of float16 are of float32, and rounded once: a mean fits where its sum does not, and a sum of many
would stand still where its terms are less than half of its last bit. ONNX leaves it open; onnxruntime computes so.

Where the run decides the axes, each axis i of length d has a flag r that is measured: the result has d (1 - r) + r
elements along it, and each of them is made of d r + (1 - r), so that the position in the tensor is the sum of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.frontend.converters.pointwise import is_float
from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.frontend.parameters import AxisFlags, axis_flags, emit, flat_numbers, known_axes
from softq.compiler.frontend.shape_folding import sizes
from softq.compiler.legalize import min_max
from softq.compiler.tir.symbolic import Dim, expression, plain, product
from softq.errors import RefusalError

_REDUCERS: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[[str], Any]]] = {
    "max": (min_max.greater, lambda dtype: min_max.outside(dtype, -1)),
    "min": (min_max.lesser, lambda dtype: min_max.outside(dtype, 1)),
    "sum": (lambda a, b: a + b, lambda dtype: tirx.const(0, dtype)),
    "prod": (lambda a, b: a * b, lambda dtype: tirx.const(1, dtype)),
}
"""How two elements are joined, and what is joined with nothing."""


@dataclass(frozen=True)
class _Reduction:
    """A node's reduction of its first input, whose shape is that of each tensor that is reduced.

    Attributes:
        node: The node.
        dims: The shape.
        axes: The axes: numbers, or flags that the run decides.
        keep: Whether the result keeps them with one element.
    """

    node: Node
    dims: Sequence[Dim]
    axes: Sequence[int] | AxisFlags
    keep: bool

    @property
    def count(self) -> Dim:
        """How many elements make one of the result."""
        if isinstance(self.axes, AxisFlags):
            return product(_chosen(d, r) for d, r in zip(self.dims, self.axes.chosen, strict=True))
        return product(self.dims[a] for a in self.axes)

    def reduce(self, kind: str, x: relax.Expr) -> relax.Expr:
        """Return a tensor with its elements along the axes joined; itself where there are no axes."""
        if not isinstance(self.axes, AxisFlags) and not self.axes:
            return x
        dtype = str(x.ty.dtype)
        if dtype in ("int8", "uint8") and kind in ("sum", "prod"):
            name = f"{self.node.operator} {self.node.name!r}"
            raise RefusalError(f"{name} of {dtype} has no kernel; ONNX defines it from 32 bits on")
        return self.without_axes(self._kept(kind, x)) if not self.keep else self._kept(kind, x)

    def _kept(self, kind: str, x: relax.Expr) -> relax.Expr:
        """Return the same with an axis of one element for each that is reduced."""
        dtype = str(x.ty.dtype)
        if isinstance(self.axes, AxisFlags):
            return self._by_flags(kind, x, self.axes.chosen)
        if any(plain(self.dims[a]) == 0 for a in self.axes):
            shape = [1 if i in self.axes else d for i, d in enumerate(self.dims)]
            nothing = np.array(_REDUCERS[kind][1](dtype).value, dtype)
            return self.node.emit(relax.op.full([expression(d) for d in shape], constant(nothing), dtype))
        result = self.node.emit(getattr(relax.op, kind)(x, list(self.axes), True))
        return result if str(result.ty.dtype) == dtype else self.node.emit(relax.op.astype(result, dtype))

    def _by_flags(self, kind: str, x: relax.Expr, flags: Sequence[tirx.Var]) -> relax.Expr:
        joined, neutral = _REDUCERS[kind]
        pairs = list(zip(self.dims, flags, strict=True))
        kept, reduced = [_chosen(d, 1 - r) for d, r in pairs], [_chosen(d, r) for d, r in pairs]

        def compute(values: Any, shape: Any, lengths: Any) -> Any:
            reducer = te.comm_reducer(joined, lambda dtype: neutral(str(dtype)))
            along = [te.reduce_axis((0, length), f"k{i}") for i, length in enumerate(lengths)]

            def element(*at: Any) -> Any:
                return reducer(values[tuple(a + k for a, k in zip(at, along, strict=True))], axis=along)

            return te.compute(shape, element, name=kind)

        return emit(self.node, f"{kind}_of_axes", compute, x, kept, reduced)

    def without_axes(self, x: relax.Expr) -> relax.Expr:
        """Return a reduced tensor without the axes of one element."""
        if isinstance(self.axes, AxisFlags):
            return reshape(self.node, x, self.axes.others(self.node, self.dims))
        return reshape(self.node, x, [d for i, d in enumerate(self.dims) if i not in self.axes])


def _chosen(length: Dim, flag: Any) -> Dim:
    """Return a length if a flag is 1, or 1 if it is 0."""
    return 1 if plain(length) == 1 else expression(length) * flag + (1 - flag)


def _reduction(node: Node) -> _Reduction:
    dims, keep = node.shape(0), bool(node.attributes.get("keepdims", 1))
    none_is_all = not node.attributes.get("noop_with_empty_axes", 0)
    given = known_axes(node)
    if given is None:
        axes = flat_numbers(node, 1)
        given = [] if plain(axes.ty.shape.values[0]) == 0 else None
        if given is None:
            return _Reduction(node, dims, axis_flags(node, axes, len(dims), none_is_all), keep)
    if not given and none_is_all:
        return _Reduction(node, dims, range(len(dims)), keep)
    return _Reduction(node, dims, sorted({node.axis(a, len(dims)) for a in given}), keep)


def _extremum(kind: str) -> Converter:
    return lambda node: [_reduction(node).reduce(kind, node.tensor(0))]


def _sum_as_float32(
    function: Callable[[Node, _Reduction, relax.Expr], relax.Expr], floats_only: bool = False
) -> Converter:
    """Return the converter of a function of the node's tensor, which it gets as float32 where it is of float16."""

    def convert(node: Node) -> list[relax.Expr]:
        x = node.tensor(0)
        dtype = str(x.ty.dtype)
        if floats_only and not is_float(x):
            raise RefusalError(f"{node.operator} {node.name!r} of {dtype} has no kernel; floating point is needed")
        reduction = _reduction(node)
        if dtype != "float16":
            return [function(node, reduction, x)]
        wide = node.emit(relax.op.astype(x, "float32"))
        return [node.emit(relax.op.astype(function(node, reduction, wide), dtype))]

    return convert


def _mean(node: Node, reduction: _Reduction, x: relax.Expr) -> relax.Expr:
    dtype = str(x.ty.dtype)
    count = node.importer.written(sizes([reduction.count], ()), "int64")
    divisor = node.emit(relax.op.astype(count, dtype))
    return node.emit(relax.op.divide(reduction.reduce("sum", x), divisor))


def _sum_square(node: Node, reduction: _Reduction, x: relax.Expr) -> relax.Expr:
    return reduction.reduce("sum", node.emit(relax.op.multiply(x, x)))


def _log_sum_exp(node: Node, reduction: _Reduction, x: relax.Expr) -> relax.Expr:
    if not isinstance(reduction.axes, AxisFlags) and not reduction.axes:
        return x
    kept = _Reduction(node, reduction.dims, reduction.axes, True)
    # The greatest is taken out, so that no exponential overflows; it is no number to subtract if it is infinite.
    greatest = kept.reduce("max", x)
    finite = node.emit(relax.op.isfinite(greatest))
    base = node.emit(relax.op.where(finite, greatest, relax.const(0.0, str(x.ty.dtype))))
    exponentials = node.emit(relax.op.exp(_less(node, kept, x, base)))
    total = kept.reduce("sum", exponentials)
    result = node.emit(relax.op.add(node.emit(relax.op.log(total)), base))
    return result if reduction.keep else reduction.without_axes(result)


def _less(node: Node, reduction: _Reduction, x: relax.Expr, base: relax.Expr) -> relax.Expr:
    """Return a tensor less what its elements were reduced to."""
    if not isinstance(reduction.axes, AxisFlags):
        return node.emit(relax.op.subtract(x, base))

    def compute(values: Any, bases: Any, flags: Any) -> Any:
        def element(*at: Any) -> Any:
            return values[at] - bases[tuple(a * (1 - r) for a, r in zip(at, flags, strict=True))]

        return te.compute(values.shape, element, name="less")

    return emit(node, "less", compute, x, base, reduction.axes.chosen)


CONVERTERS: Mapping[str, Converter] = {
    "ReduceMax": _extremum("max"),
    "ReduceMin": _extremum("min"),
    "ReduceSum": _sum_as_float32(lambda node, r, x: r.reduce("sum", x)),
    "ReduceProd": _sum_as_float32(lambda node, r, x: r.reduce("prod", x)),
    "ReduceMean": _sum_as_float32(_mean),
    "ReduceSumSquare": _sum_as_float32(_sum_square),
    "ReduceL1": _sum_as_float32(lambda node, r, x: r.reduce("sum", node.emit(relax.op.abs(x)))),
    "ReduceL2": _sum_as_float32(lambda node, r, x: node.emit(relax.op.sqrt(_sum_square(node, r, x))), True),
    "ReduceLogSum": _sum_as_float32(lambda node, r, x: node.emit(relax.op.log(r.reduce("sum", x))), True),
    "ReduceLogSumExp": _sum_as_float32(_log_sum_exp, True),
}
