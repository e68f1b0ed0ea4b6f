"""Open operators on quantized tensors into integer products and quantization, which compilers know.

`QLinearMatMul`, `QLinearConv`, `QGemm` and onnxruntime's products with a result of floats keep their exact integer
sums; `y = round(sum * s_a * s_b / s_y) + z_y` is computed in float32 with the factors in another order than in
onnxruntime, so a sum at a rounding boundary may give the code beside: one step at most. `QLinearSoftmax` becomes
DequantizeLinear, Softmax, QuantizeLinear, also within one step of the table of exponentials that onnxruntime's kernel
uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from softq.graph.bodies import conv_options, format_float, has_input, parse_body
from softq.passes import BodyPass, PassEntry
from softq.passes.expand_contrib import DOMAIN

_FLOAT = int(ir.DataType.FLOAT)


class ExpandQuantized(BodyPass):
    """Opens the operators of `_BODIES`; scales and zero points of rows (not columns) stay closed."""

    def _body(self, node: ir.Node, opset: int) -> onnx.FunctionProto | None:
        make = _BODIES.get((node.domain, node.op_type))
        return None if make is None or opset < 18 else make(node, opset)


_MATMUL = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero"]


def _matmul(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    if not is_single(node, (1, 2, 6, 7)) or not _columns(node, (4, 5)):
        return None
    lines = [*_multiply("a", "b"), *_rescale("sum")]
    lines.append("y = QuantizeLinear (real, y_scale_F, y_zero_0)")
    names = [*_MATMUL, "y_scale", "y_zero"]
    return parse_body(opset, names, ["y"], [*scalars("y_scale", "y_zero"), _wide("y_scale_0", "y_scale_F"), *lines])


def _conv(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (int32 in units of x_scale * w_scale).
    weights = node.inputs[3]
    if not is_single(node, (1, 2, 6, 7)) or not _columns(node, (4, 5)) or weights is None or weights.shape is None:
        return None
    spread = f"int64[{len(weights.shape) - 1}] {{{', '.join(['-1'] + ['1'] * (len(weights.shape) - 2))}}}"
    lines = scalars("x_scale", "x_zero", "y_scale", "y_zero")
    lines.append(f"sum = ConvInteger {conv_options(node)} (x, w, x_zero_0, w_zero)")
    lines.append(f"spread = Constant <value: tensor = {spread}> ()")
    total = "sum"
    if has_input(node, 8):
        lines += ["spread_bias = Reshape (bias, spread)", "total = Add (sum, spread_bias)"]
        total = "total"
    lines += [
        f"wide = Cast <to: int = {_FLOAT}> ({total})",
        "unit = Mul (x_scale_0, w_scale)",
        "spread_unit = Reshape (unit, spread)",
        "real = Mul (wide, spread_unit)",
        "y = QuantizeLinear (real, y_scale_0, y_zero_0)",
    ]
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "bias"]
    return parse_body(opset, names, ["y"], lines)


def _matmul_to_float(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: A, B, a_scale, b_scale, a_zero, b_zero, bias.
    if not is_single(node, [i for i in (2, 4) if has_input(node, i)]) or not _columns(node, [3]):
        return None
    if any(has_input(node, i) and not _columns(node, [i]) for i in (5,)):
        return None
    lines = scalars("a_scale", *(["a_zero"] if has_input(node, 4) else []))
    zeros = (", a_zero_0" if has_input(node, 4) else ", " * has_input(node, 5)) + ", b_zero" * has_input(node, 5)
    lines += [f"sum = MatMulInteger (a, b{zeros})", *_rescale("sum"), *_biased(node, 6)]
    return parse_body(opset, ["a", "b", "a_scale", "b_scale", "a_zero", "b_zero", "bias"], ["y"], lines)


def _dynamic_matmul(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: A (float), B, b_scale, b_zero, bias.
    if not _columns(node, [2]) or (has_input(node, 3) and not _columns(node, [3])):
        return None
    zero = ", b_zero" * has_input(node, 3)
    lines = ["a, a_scale_0, a_zero_0 = DynamicQuantizeLinear (real_a)"]
    lines += [f"sum = MatMulInteger (a, b, a_zero_0{zero})", *_rescale("sum"), *_biased(node, 4)]
    return parse_body(opset, ["real_a", "b", "b_scale", "b_zero", "bias"], ["y"], lines)


def _biased(node: ir.Node, place: int) -> list[str]:
    return ["y = Add (real, bias)" if has_input(node, place) else "y = Identity (real)"]


def _wide(source: str, result: str) -> str:
    return f"{result} = Cast <to: int = {_FLOAT}> ({source})"


def _gemm(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    # Inputs: A, a_scale, a_zero, B, b_scale, b_zero, C (int32 in units of alpha * a_scale * b_scale), y_scale, y_zero.
    quantized = has_input(node, 7)
    if not is_single(node, (1, 2, *((7, 8) if quantized else ()))) or not _columns(node, (4, 5)):
        return None
    lines: list[str] = []
    names: list[str] = []
    for name, flag in (("a", "transA"), ("b", "transB")):
        turned = node.attributes.get_int(flag, 0) != 0
        lines += [f"{name}t = Transpose <perm: ints = [1, 0]> ({name})"] if turned else []
        names.append(f"{name}t" if turned else name)
    lines += _multiply(*names)
    total = "sum"
    if has_input(node, 6):
        lines.append("total = Add (sum, c)")
        total = "total"
    lines += _rescale(total, node.attributes.get_float("alpha", 1.0))
    if quantized:
        lines += [*scalars("y_scale", "y_zero"), "y = QuantizeLinear (real, y_scale_0, y_zero_0)"]
    else:
        lines.append("y = Identity (real)")
    return parse_body(opset, [*_MATMUL, "c", "y_scale", "y_zero"], ["y"], lines)


def _softmax(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    source = node.inputs[0]
    if source is None or source.shape is None or not has_input(node, 2) or not has_input(node, 4):
        return None
    if not is_single(node, (1, 2, 3, 4)):
        return None
    axis, rank = node.attributes.get_int("axis", -1), len(source.shape)
    if node.attributes.get_int("opset", 13) < 13 and axis not in (-1, rank - 1):
        # Below 13 the axis spans all later ones.
        return None
    lines = scalars("x_scale", "x_zero", "y_scale", "y_zero")
    lines += [
        "real = DequantizeLinear (x, x_scale_0, x_zero_0)",
        f"weights = Softmax <axis: int = {axis}> (real)",
        "y = QuantizeLinear (weights, y_scale_0, y_zero_0)",
    ]
    return parse_body(opset, ["x", "x_scale", "x_zero", "y_scale", "y_zero"], ["y"], lines)


def _multiply(a: str, b: str) -> list[str]:
    return [*scalars("a_scale", "a_zero"), f"sum = MatMulInteger ({a}, {b}, a_zero_0, b_zero)"]


def _rescale(total: str, factor: float = 1.0) -> list[str]:
    lines = [f"wide = Cast <to: int = {_FLOAT}> ({total})", _wide("a_scale_0", "a_scale_F")]
    lines += [_wide("b_scale", "b_scale_F"), "unit = Mul (a_scale_F, b_scale_F)"]
    if factor != 1.0:
        lines.append(f"factor = Constant <value: tensor = float {{{format_float(factor)}}}> ()")
        lines.append("unit_0 = Mul (unit, factor)")
    return [*lines, f"real = Mul (wide, {'unit' if factor == 1.0 else 'unit_0'})"]


def scalars(*names: str) -> list[str]:
    """Return lines that take the one axis off that a single number may come with."""
    shape = f"none_{names[0]}"
    return [
        f"{shape} = Constant <value: tensor = int64[0] {{}}> ()",
        *(f"{name}_0 = Reshape ({name}, {shape})" for name in names),
    ]


def is_single(node: ir.Node, indices: Sequence[int]) -> bool:
    """Say whether inputs are known to be single numbers."""
    return all(_sizes(node, index) in ([], [1]) for index in indices)


def _columns(node: ir.Node, indices: Sequence[int]) -> bool:
    return all(len(_sizes(node, index) or []) < 2 and _sizes(node, index) is not None for index in indices)


def _sizes(node: ir.Node, index: int) -> list[int | ir.SymbolicDim] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.shape is None else list(value.shape)


_BODIES: Mapping[tuple[str, str], Callable[[ir.Node, int], onnx.FunctionProto | None]] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    (DOMAIN, "DynamicQuantizeMatMul"): _dynamic_matmul,
    (DOMAIN, "MatMulIntegerToFloat"): _matmul_to_float,
    (DOMAIN, "QGemm"): _gemm,
    (DOMAIN, "QLinearSoftmax"): _softmax,
}


PASS = PassEntry("expand-quantized", ExpandQuantized, "Open quantized products and softmaxes", frozenset(_BODIES))
