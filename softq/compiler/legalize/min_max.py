"""Greatest and least values, and where they are: as ONNX defines them, with NaN and infinities.

TVM's maximum of a NaN is one of its operands, whichever stands second; its greatest of a row begins with the least
finite number, so that a row of -inf has a greatest that is not in it, and no position.

By one thread the greatest number of a tensor, which a dynamic quantization asks for, would take longer than the product
that follows. `IN_STEPS` has it in steps, in which neighbouring threads read neighbours: the first of `parts` threads
takes every `parts`-th number from the first one on, and so on; what they find is taken together by fewer threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from softq.compiler.tir.symbolic import expression, plain, product

Expr = Any
Legalize = Callable[[Any, Any], Any]


def _choose(a: Expr, b: Expr, better: Expr) -> Expr:
    """Return a, if it is better or NaN, else b: a NaN in b makes every comparison false."""
    is_float = str(a.ty).startswith(("float", "bfloat"))
    return tirx.Select(tirx.Or(better, tirx.isnan(a)) if is_float else better, a, b)


def greater(a: Expr, b: Expr) -> Expr:
    """Return the greater one; NaN if one is NaN."""
    return _choose(a, b, a > b)


def lesser(a: Expr, b: Expr) -> Expr:
    """Return the lesser one; NaN if one is NaN."""
    return _choose(a, b, a < b)


def outside(dtype: str, sign: int) -> Expr:
    """Return the value that no other is beyond, in the direction of the sign."""
    if dtype.startswith(("float", "bfloat")):
        return tirx.const(sign * np.inf, dtype)
    return tirx.max_value(dtype) if sign > 0 else tirx.min_value(dtype)


def axes_of(call: Any, rank: int) -> list[int]:
    """Return the axes that a call of Relax reduces, counted from the front, in their order."""
    given = call.attrs.axis
    if given is None:
        return list(range(rank))
    return sorted(int(a) % rank for a in (given if hasattr(given, "__len__") else [given]))


def _index(axes: list[int], rank: int, keep: bool, at: Any, reduced: list[Any]) -> list[Any]:
    """Return the position in the input of a position in the result and one along each reduced axis."""
    kept = [i for i in range(rank) if i not in axes]
    where: dict[int, Any] = dict(zip(axes, reduced, strict=True))
    where |= {axis: at[axis if keep else place] for place, axis in enumerate(kept)}
    return [where[axis] for axis in range(rank)]


def _shape(x: Any, axes: list[int], keep: bool) -> list[Any]:
    return [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]


def reduction(function: Callable[[Expr, Expr], Expr], sign: int) -> Legalize:
    """Return the reduction by a function whose neutral value is the last one in the direction of the sign."""

    def legalize(builder: Any, call: Any) -> Any:
        def compute(x: Any) -> Any:
            rank, keep = len(x.shape), bool(call.attrs.keepdims)
            axes = axes_of(call, rank)
            reducer = te.comm_reducer(function, lambda dtype: outside(str(dtype), sign))
            along = [te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes]
            return te.compute(
                _shape(x, axes, keep),
                lambda *at: reducer(x[tuple(_index(axes, rank, keep, at, along))], axis=along),
                name=function.__name__,
            )

        return builder.call_te(compute, call.args[0], primfunc_name_hint=function.__name__)

    return legalize


def _position(beyond: Callable[[Expr, Expr], Expr], name: str) -> Legalize:
    """Return the first position of the value that no other is beyond; NaN is none."""

    def combine(a: Any, b: Any) -> Any:
        # A position of -1 stands for nothing yet.
        takes = tirx.Or(a[0] < 0, tirx.And(b[0] >= 0, beyond(b[1], a[1])))
        if str(a[1].ty).startswith(("float", "bfloat")):
            takes = tirx.Or(takes, tirx.And(b[0] >= 0, tirx.isnan(a[1])))
        return tirx.Select(takes, b[0], a[0]), tirx.Select(takes, b[1], a[1])

    def legalize(builder: Any, call: Any) -> Any:
        def compute(x: Any) -> Any:
            rank, keep = len(x.shape), bool(call.attrs.keepdims)
            axes = axes_of(call, rank)
            if plain(x.shape[axes[0]]) == 1:
                # TVM leaves names without values where one round is all that a kernel has.
                return te.compute(_shape(x, axes, keep), lambda *at: tirx.const(0, "int64"), name=name)
            reducer = te.comm_reducer(combine, lambda i, v: (tirx.const(-1, i), tirx.const(0, v)), name=name)
            along = te.reduce_axis((0, x.shape[axes[0]]), "k")

            def element(*at: Any) -> Any:
                value = x[tuple(_index(axes, rank, keep, at, [along]))]
                return reducer((along.var.astype("int64"), value), axis=along)

            shape = _shape(x, axes, keep)
            positions, _ = te.compute(shape, element, name=name)
            return te.compute(shape, lambda *at: positions[at], name="position")

        return builder.call_te(compute, call.args[0], primfunc_name_hint=name)

    return legalize


LEGALIZE: Mapping[str, Legalize] = {
    "relax.max": reduction(greater, -1),
    "relax.min": reduction(lesser, 1),
    "relax.argmax": _position(lambda a, b: a > b, "argmax"),
    "relax.argmin": _position(lambda a, b: a < b, "argmin"),
}
"""What TVM's `LegalizeOps` takes in place of its own."""

_OF_ROWS, _OF_TENSORS = (64,), (4096, 64)
"""How many threads share a row in each step, before one takes what is left: where there are several rows, or one."""


def _in_parts(function: Callable[[Any, Any], Any], sign: int) -> Legalize:
    whole = reduction(function, sign)

    def legalize(builder: Any, call: Any) -> Any:
        x, dims = call.args[0], [plain(d) for d in call.args[0].ty.shape.values]
        axes = axes_of(call, len(dims))
        rows = len(dims) - len(axes)
        length = product(dims[rows:])
        counts = _OF_TENSORS if product(dims[:rows]) == 1 else _OF_ROWS
        if axes != list(range(rows, len(dims))) or not axes or (isinstance(length, int) and length < 4 * counts[-1]):
            return whole(builder, call)
        flat = builder.emit(relax.op.reshape(x, [expression(d) for d in [*dims[:rows], length]]))
        kept = [1] * len(axes) if call.attrs.keepdims else []
        neutral = outside(str(x.ty.dtype), sign)
        reducer = te.comm_reducer(function, lambda dtype: outside(str(dtype), sign))

        def compute(values: Any) -> Any:
            shape, there = [*values.shape[:rows], *kept], values.shape[rows]
            for number, count in enumerate(counts):
                values = shared(values, there, count, f"parts{number}")
                there = tirx.IntImm("int64", count)
            k = te.reduce_axis((0, there), "k")
            return te.compute(shape, lambda *at: reducer(values[(*at[:rows], k)], axis=k), name=function.__name__)

        def shared(values: Any, there: Any, count: int, name: str) -> Any:
            step = tirx.IntImm("int64", count)
            k = te.reduce_axis((0, tirx.floordiv(there + (count - 1), step)), "k")

            def element(*at: Any) -> Any:
                place = k * step + at[rows]
                return reducer(tirx.if_then_else(place < there, values[(*at[:rows], place)], neutral), axis=k)

            return te.compute([*values.shape[:rows], step], element, name=name)

        return builder.call_te(compute, flat, primfunc_name_hint=f"{function.__name__}_in_parts")

    return legalize


IN_STEPS: Mapping[str, Legalize] = {
    **LEGALIZE,
    "relax.max": _in_parts(greater, -1),
    "relax.min": _in_parts(lesser, 1),
}
"""The same where a thread of its own computes each element."""
