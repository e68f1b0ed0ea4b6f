"""Greatest and least values, and where they are: as ONNX defines them, with NaN and infinities.

TVM's maximum of a NaN is one of its operands, whichever stands second; its greatest of a row begins with the least
finite number, so that a row of -inf has a greatest that is not in it, and no position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import te, tirx

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
