"""Greatest and least values of rows and of whole tensors in steps, in which neighbouring threads read neighbours.

A dynamic quantization asks for the least and the greatest number of a tensor: by one thread it would take longer than
the product that follows. The first of `parts` threads takes every `parts`-th number from the first one on, and so on;
what they find is taken together by fewer threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.legalize import min_max
from softq.compiler.tir.symbolic import expression, plain, product

_OF_ROWS, _OF_TENSORS = (64,), (4096, 64)
"""How many threads share a row in each step, before one takes what is left: where there are several rows, or one."""


def _in_parts(function: Callable[[Any, Any], Any], sign: int) -> min_max.Legalize:
    whole = min_max.reduction(function, sign)

    def legalize(builder: Any, call: Any) -> Any:
        x, dims = call.args[0], [plain(d) for d in call.args[0].ty.shape.values]
        axes = min_max.axes_of(call, len(dims))
        rows = len(dims) - len(axes)
        length = product(dims[rows:])
        counts = _OF_TENSORS if product(dims[:rows]) == 1 else _OF_ROWS
        if axes != list(range(rows, len(dims))) or not axes or (isinstance(length, int) and length < 4 * counts[-1]):
            return whole(builder, call)
        flat = builder.emit(relax.op.reshape(x, [expression(d) for d in [*dims[:rows], length]]))
        kept = [1] * len(axes) if call.attrs.keepdims else []
        outside = min_max.outside(str(x.ty.dtype), sign)
        reducer = te.comm_reducer(function, lambda dtype: min_max.outside(str(dtype), sign))

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
                return reducer(tirx.if_then_else(place < there, values[(*at[:rows], place)], outside), axis=k)

            return te.compute([*values.shape[:rows], step], element, name=name)

        return builder.call_te(compute, flat, primfunc_name_hint=f"{function.__name__}_in_parts")

    return legalize


LEGALIZE: Mapping[str, min_max.Legalize] = {
    **min_max.LEGALIZE,
    "relax.max": _in_parts(min_max.greater, -1),
    "relax.min": _in_parts(min_max.lesser, 1),
}
"""What TVM's `LegalizeOps` takes in place of its own."""
