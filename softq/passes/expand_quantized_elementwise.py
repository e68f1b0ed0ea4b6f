"""Open onnxruntime's operators on quantized tensors that are no products: dequantize, compute, quantize.

Results are within one step of onnxruntime's, which takes the factors together or has a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from softq.graph.bodies import format_float, has_input, parse_body, pool_options
from softq.passes import BodyPass, PassEntry
from softq.passes.expand_contrib import DOMAIN
from softq.passes.expand_quantized import is_single, scalars


class ExpandQuantizedElementwise(BodyPass):
    """Opens the operators of `BODIES`; scales and zero points that are no single numbers stay closed."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        make = BODIES.get(node.op_type) if node.domain == DOMAIN else None
        return None if make is None or opset < 18 else make(node, opset)


Lines = Callable[[ir.Node], Sequence[str] | None]


def _of(count: int, make: Lines) -> Callable[[ir.Node, int], onnx.FunctionProto | None]:
    """Return what makes the body of an operator of so many tensors, each with scale and zero point, then the result's.

    The lines compute `Y` of `X0` and so on.
    """

    def body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        places = [3 * i for i in range(count)]
        return _quantized(node, opset, places, 3 * count, make(node))

    return body


def _quantized(
    node: ir.Node, opset: int, places: Sequence[int], result: int, lines: Sequence[str] | None
) -> onnx.FunctionProto | None:
    """Return a body whose tensors stand at these places, each before its scale and zero point, and its result's."""
    numbers = [place + offset for place in places for offset in (1, 2)] + [result, result + 1]
    given = [place for place in numbers if has_input(node, place)]
    if lines is None or not is_single(node, given):
        return None
    names = [f"i{place}" for place in range(len(node.inputs))]
    body = scalars(*(f"i{place}" for place in given))
    for number, place in enumerate(places):
        zero = f", i{place + 2}_0" if place + 2 in given else ""
        body.append(f"X{number} = DequantizeLinear (i{place}, i{place + 1}_0{zero})")
    zero = f", i{result + 1}_0" if result + 1 in given else ""
    return parse_body(opset, names, ["y"], [*body, *lines, f"y = QuantizeLinear (Y, i{result}_0{zero})"])


def _concat(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # The result's scale and zero point come first.
    places = list(range(2, len(node.inputs), 3))
    parts = ", ".join(f"X{number}" for number in range(len(places)))
    lines = [f"Y = Concat <axis: int = {node.attributes.get_int('axis', 0)}> ({parts})"]
    return _quantized(node, opset, places, 0, lines)


def _where(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    return _quantized(node, opset, [1, 4], 7, ["Y = Where (i0, X0, X1)"])


def _leaky_relu(node: ir.Node) -> Sequence[str]:
    alpha = format_float(node.attributes.get_float("alpha", 0.01))
    return [f"Y = LeakyRelu <alpha: float = {alpha}> (X0)"]


def _around(node: ir.Node, operator: str) -> Sequence[str] | None:
    """Return lines for an operator on images, whose channels may be the last axis."""
    if not node.attributes.get_int("channels_last", 0):
        return [f"Y = {operator} (X0)"]
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    rank = len(source.shape)
    return [
        f"Front = Transpose <perm: ints = {[0, rank - 1, *range(1, rank - 1)]}> (X0)",
        f"Pooled = {operator} (Front)",
        f"Y = Transpose <perm: ints = {[0, *range(2, rank), 1]}> (Pooled)",
    ]


def _mean(node: ir.Node) -> Sequence[str]:
    axes = node.attributes.get("axes")
    numbers = [] if axes is None else list(axes.as_ints())
    literal = ", ".join(map(str, numbers))
    return [
        f"axes = Constant <value: tensor = int64[{len(numbers)}] {{{literal}}}> ()",
        f"Y = ReduceMean <keepdims: int = {node.attributes.get_int('keepdims', 1)}> (X0, axes)",
    ]


BODIES: Mapping[str, Callable[[ir.Node, int], onnx.FunctionProto | None]] = {
    "QLinearAdd": _of(2, lambda node: ["Y = Add (X0, X1)"]),
    "QLinearMul": _of(2, lambda node: ["Y = Mul (X0, X1)"]),
    "QLinearSigmoid": _of(1, lambda node: ["Y = Sigmoid (X0)"]),
    "QLinearLeakyRelu": _of(1, _leaky_relu),
    "QLinearAveragePool": _of(1, lambda node: _around(node, f"AveragePool {pool_options(node)}")),
    "QLinearGlobalAveragePool": _of(1, lambda node: _around(node, "GlobalAveragePool")),
    "QLinearReduceMean": _of(1, _mean),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
}
"""What makes the body of each operator."""


PASS = PassEntry(
    "expand-quantized-elementwise",
    ExpandQuantizedElementwise,
    "Open onnxruntime's quantized operators",
    frozenset((DOMAIN, name) for name in BODIES),
)
