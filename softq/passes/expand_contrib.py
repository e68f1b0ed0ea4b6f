"""Open onnxruntime's own operators (domain `com.microsoft`) into standard ones.

The texts say what the operators compute, from their documentation (ContribOperators.md) and their CPU kernels. Results
differ from those by the rounding of the same operations in another order: a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from softq.graph.bodies import format_float, has_input, is_read, parse_body
from softq.passes import BodyPass, PassEntry

DOMAIN = "com.microsoft"

_FLOAT = int(ir.DataType.FLOAT)


class ExpandContrib(BodyPass):
    """Opens the operators of `BODIES`; one whose types, ranks or modes the text does not cover stays."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        # onnxruntime keeps SimplifiedLayerNormalization in the default domain, where ONNX has no operator of that name.
        if node.domain != DOMAIN and (node.domain, node.op_type) != ("", "SimplifiedLayerNormalization"):
            return None
        make = BODIES.get(node.op_type)
        return None if make is None or opset < 18 else make(node, opset)


def _matmul(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    lines: list[str] = []
    names: list[str] = []
    for name, value in zip("AB", node.inputs[:2], strict=True):
        turned, batched = (bool(node.attributes.get_int(f"{flag}{name}", 0)) for flag in ("trans", "transBatch"))
        if not turned and not batched:
            names.append(name)
            continue
        if value is None or value.shape is None:
            return None
        order = list(range(len(value.shape)))
        if batched and len(order) > 1:  # The first axis goes behind those of the batch.
            order.insert(-1, order.pop(0))
        # A vector has nothing to transpose.
        order = [*order[:-2], *(reversed(order[-2:]) if turned else order[-2:])]
        lines.append(f"{name}T = Transpose <perm: ints = {order}> ({name})")
        names.append(f"{name}T")
    lines.append(f"P = MatMul ({', '.join(names)})")
    lines += _scale("P", node.attributes.get_float("alpha", 1.0), "Y")
    return parse_body(opset, ["A", "B"], ["Y"], lines)


def _scale(source: str, factor: float, result: str) -> list[str]:
    return [
        f"{result}Factor = Constant <value: tensor = float {{{format_float(factor)}}}> ()",
        f"{result}Typed = CastLike ({result}Factor, {source})",
        f"{result} = Mul ({source}, {result}Typed)",
    ]


_ACTIVATIONS = frozenset({"Identity", "Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"})


def _gemm(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    attributes = node.attributes
    last = attributes.get_string("activation", "") or "Identity"
    if last == "LeakyRelu":
        last = f"LeakyRelu <alpha: float = {format_float(attributes.get_float('activation_alpha', 0.01))}>"
    elif last not in _ACTIVATIONS:
        return None
    names = ["A", "B", "C"] if has_input(node, 2) else ["A", "B"]
    options = [f"{name}: float = {format_float(attributes.get_float(name, 1.0))}" for name in ("alpha", "beta")]
    options += [f"{name}: int = {attributes.get_int(name, 0)}" for name in ("transA", "transB")]
    lines = [f"P = Gemm <{', '.join(options)}> ({', '.join(names)})", f"Y = {last} (P)"]
    return parse_body(opset, names, ["Y"], lines)


def _skip_layer_normalization(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: input, skip, gamma, beta, bias. Outputs: output, mean, inv_std_var, input_skip_bias_sum.
    epsilon = format_float(node.attributes.get_float("epsilon", 1e-12))
    lines = _sum(node, 4)
    scale = ["S", "gamma", "beta"] if has_input(node, 3) else ["S", "gamma"]
    outputs = ["Y", "Mean", "Inverse"] if is_read(node, 1) or is_read(node, 2) else ["Y"]
    lines.append(
        f"{', '.join(outputs)} = LayerNormalization <axis: int = -1, epsilon: float = {epsilon}> ({', '.join(scale)})"
    )
    lines.append("Sum = Identity (S)")
    inputs = ["input", "skip", "gamma", "beta", "bias"]
    return parse_body(opset, inputs, ["Y", "Mean", "Inverse", "Sum"], lines)


def _skip_simplified(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: input, skip, gamma, bias. Outputs as above.
    if is_read(node, 1) or is_read(node, 2) or node.inputs[0] is None or node.inputs[0].dtype is None:
        return None
    lines = [*_sum(node, 3), *_root_mean_square("S", node, "axes = Constant <value: tensor = int64[1] {-1}> ()")]
    return parse_body(
        opset, ["input", "skip", "gamma", "bias"], ["Y", "Mean", "Inverse", "Sum"], [*lines, "Sum = Identity (S)"]
    )


def _sum(node: ir.Node, bias: int) -> list[str]:
    if has_input(node, bias):
        return ["S0 = Add (input, skip)", "S = Add (S0, bias)"]
    return ["S = Add (input, skip)"]


def _simplified(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    source = node.inputs[0]
    if is_read(node, 1) or source is None or source.dtype is None:
        return None
    axis = node.attributes.get_int("axis", -1)
    if source.shape is None and axis != -1:
        return None
    rank = 1 if source.shape is None else len(source.shape)
    axes = [-1] if axis == -1 else list(range(axis % rank, rank))
    literal = ", ".join(map(str, axes))
    line = f"axes = Constant <value: tensor = int64[{len(axes)}] {{{literal}}}> ()"
    return parse_body(opset, ["X", "gamma"], ["Y"], _root_mean_square("X", node, line))


def _root_mean_square(source: str, node: ir.Node, axes: str) -> list[str]:
    """Return lines for `Y = x / sqrt(mean(x^2) + epsilon) * gamma`, in float32 as the kernels have it."""
    epsilon = format_float(node.attributes.get_float("epsilon", 1e-5))
    return [
        axes,
        f"F = Cast <to: int = {_FLOAT}> ({source})",
        "Square = Mul (F, F)",
        "MeanSquare = ReduceMean (Square, axes)",
        f"Epsilon = Constant <value: tensor = float {{{epsilon}}}> ()",
        "Guarded = Add (MeanSquare, Epsilon)",
        "Root = Sqrt (Guarded)",
        "Quotient = Div (F, Root)",
        f"Narrow = CastLike (Quotient, {source})",
        "Y = Mul (Narrow, gamma)",
    ]


def _gelu(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return `x/2 * (1 + erf(x / sqrt(2)))`, of `A + B` where there is a bias."""
    return _half_of_sum(node, opset, "Y = Gelu (X)", [*_scale("X", math.sqrt(0.5), "Z"), "E = Erf (Z)"], "E")


def _fast_gelu(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, the approximation that ONNX calls "tanh" too."""
    inner = ["X2 = Mul (X, X)", "X3 = Mul (X2, X)", *_scale("X3", 0.044715, "C"), "I = Add (X, C)"]
    inner += [*_scale("I", math.sqrt(2 / math.pi), "Z"), "T = Tanh (Z)"]
    return _half_of_sum(node, opset, 'Y = Gelu <approximate: string = "tanh"> (X)', inner, "T")


def _half_of_sum(node: ir.Node, opset: int, operator: str, lines: list[str], last: str) -> onnx.FunctionProto:
    """Return `x/2 * (1 + last)` where there is no operator yet."""
    one = ["OneF = Constant <value: tensor = float {1.0}> ()", "One = CastLike (OneF, X)"]
    product = [f"P = Add ({last}, One)", "XP = Mul (X, P)", *_scale("XP", 0.5, "Y")]
    biased = has_input(node, 1)
    source = "X = Add (A, B)" if biased else "X = Identity (A)"
    body = [operator] if opset >= 20 else [*lines, *one, *product]
    return parse_body(opset, ["A", "B"] if biased else ["A"], ["Y"], [source, *body])


def _quick_gelu(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    lines = [*_scale("X", node.attributes.get_float("alpha", 1.702), "Z"), "G = Sigmoid (Z)", "Y = Mul (X, G)"]
    return parse_body(opset, ["X"], ["Y"], lines)


def _codes(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return ONNX's operator of the same name; it has scales of float16 from opset 19 on."""
    scale = node.inputs[1]
    if opset < 19 and (scale is None or scale.dtype != ir.DataType.FLOAT):
        return None
    names = ["x", "scale", "zero"][: len(node.inputs)]
    line = f"y = {node.op_type} <axis: int = {node.attributes.get_int('axis', 1)}> ({', '.join(names)})"
    return parse_body(opset, names, ["y"], [line])


BODIES: Mapping[str, Callable[[ir.Node, int], onnx.FunctionProto | None]] = {
    "BiasGelu": _gelu,
    "DequantizeLinear": _codes,
    "FastGelu": _fast_gelu,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "QuantizeLinear": _codes,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified,
}
"""What makes the body of each operator."""


PASS = PassEntry(
    "expand-contrib",
    ExpandContrib,
    "Open onnxruntime's own operators into standard ones",
    frozenset({*((DOMAIN, name) for name in BODIES), ("", "SimplifiedLayerNormalization")}),
)
