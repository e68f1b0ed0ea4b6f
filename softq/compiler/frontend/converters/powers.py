"""Powers: those of integers are exact for exponents that are integers, cut off for others.

A result that the type cannot hold is what is left of it in the type's bits; onnxruntime, which computes in float64, has
another number there, and none that ONNX defines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax, te, tirx

from softq.compiler.frontend.converters.pointwise import is_float
from softq.compiler.frontend.converters.shapes import broadcast_shape, expand
from softq.compiler.frontend.onnx_node import Converter, Node
from softq.compiler.frontend.parameters import emit, integer

_MOST = 65
"""The greatest exponent that counts: from 64 on only whether it is odd, for bases of 1 and -1."""


def _pow(node: Node) -> list[relax.Expr] | None:
    base, exponent = node.tensor(0), node.tensor(1)
    if base.ty.dtype == exponent.ty.dtype and is_float(base):
        return None
    if is_float(base):
        # In the type of the base, as onnxruntime has it.
        return [node.emit(relax.op.power(base, node.emit(relax.op.astype(exponent, str(base.ty.dtype)))))]
    dtype, shape = str(base.ty.dtype), broadcast_shape(node, node.shape(0), node.shape(1))
    wide = "float64" if is_float(exponent) else "int64"
    x, e = (expand(node, node.emit(relax.op.astype(value, wide)), shape) for value in (base, exponent))
    result = node.emit(relax.op.power(x, e)) if is_float(exponent) else emit(node, "powers", _integer_powers, x, e)
    return [node.emit(relax.op.astype(result, dtype))]


def _integer_powers(base: Any, exponent: Any) -> Any:
    """Return x^e by products; below 0 what 1 / x^-e is cut off to."""
    step = te.reduce_axis((0, _MOST), "step")
    multiply = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="multiply")
    one = integer(1)
    powers = te.compute(
        base.shape,
        lambda *at: multiply(tirx.Select(step < _magnitude(exponent[at]), base[at], one), axis=step),
        name="powers",
    )

    def element(*at: Any) -> Any:
        unit = tirx.Or(base[at] == 1, base[at] == -1)
        return tirx.Select(tirx.Or(exponent[at] >= 0, unit), powers[at], integer(0))

    return te.compute(base.shape, element, name="cut_off")


def _magnitude(e: Any) -> Any:
    positive = tirx.max(e, integer(0) - e)
    return tirx.Select(positive < _MOST - 1, positive, (positive & 1) + (_MOST - 1))


CONVERTERS: Mapping[str, Converter] = {"Pow": _pow}
