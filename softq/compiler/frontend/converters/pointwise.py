"""Operators of one element at a time whose result in TVM differs for NaN, infinities, integers or double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from softq.compiler.frontend.converters.shapes import reshape
from softq.compiler.frontend.onnx_node import Converter, Node, constant
from softq.compiler.tir.symbolic import product
from softq.errors import RefusalError


def number(like: relax.Expr, value: float) -> relax.Expr:
    """Return a constant of the element type of a tensor."""
    return relax.const(value, str(like.ty.dtype))


def is_float(x: relax.Expr) -> bool:
    """Say whether elements are floating point numbers."""
    return str(x.ty.dtype).startswith(("float", "bfloat"))


def choose(node: Node, better: Callable[[Any, Any], Any], a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Return the better of two tensors, element by element; NaN where one of them is."""
    takes = node.emit(better(a, b))
    if is_float(a):
        takes = node.emit(relax.op.logical_or(takes, node.emit(relax.op.isnan(a))))
    return node.emit(relax.op.where(takes, a, b))


def _extremum(better: Callable[[Any, Any], Any]) -> Converter:
    def convert(node: Node) -> list[relax.Expr]:
        result = node.tensor(0)
        for position in range(1, len(node.inputs)):
            result = choose(node, better, result, node.tensor(position))
        return [result]

    return convert


def _clip_to(node: Node, x: relax.Expr, low: relax.Expr | None, high: relax.Expr | None) -> relax.Expr:
    """Return x within bounds; NaN stays, and a bound that is NaN is none: both comparisons are false."""
    if low is not None:
        x = node.emit(relax.op.where(node.emit(relax.op.less(x, low)), low, x))
    if high is not None:
        x = node.emit(relax.op.where(node.emit(relax.op.greater(x, high)), high, x))
    return x


def _clip(node: Node) -> list[relax.Expr]:
    bounds = [node.tensor(i) if node.has(i) else None for i in (1, 2)]
    return [_clip_to(node, node.tensor(0), *bounds)]


def _relu(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    return [_clip_to(node, x, number(x, 0), None)]


def _bent(node: Node, x: relax.Expr, below: relax.Expr) -> relax.Expr:
    """Return x where it is positive or NaN, else the other."""
    return node.emit(relax.op.where(node.emit(relax.op.less_equal(x, number(x, 0))), below, x))


def _elu(node: Node) -> list[relax.Expr]:
    x, alpha = node.tensor(0), node.attributes.get("alpha", 1.0)
    below = node.emit(relax.op.subtract(node.emit(relax.op.exp(x)), number(x, 1)))
    return [_bent(node, x, node.emit(relax.op.multiply(below, number(x, alpha))))]


def _selu(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    alpha = node.attributes.get("alpha", 1.67326319217681884765625)
    gamma = node.attributes.get("gamma", 1.05070102214813232421875)
    below = node.emit(relax.op.subtract(node.emit(relax.op.exp(x)), number(x, 1)))
    below = node.emit(relax.op.multiply(below, number(x, alpha)))
    return [node.emit(relax.op.multiply(_bent(node, x, below), number(x, gamma)))]


def _prelu(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    return [_bent(node, x, node.emit(relax.op.multiply(x, node.tensor(1))))]


def _thresholded_relu(node: Node) -> list[relax.Expr]:
    x, alpha = node.tensor(0), node.attributes.get("alpha", 1.0)
    return [node.emit(relax.op.where(node.emit(relax.op.greater(x, number(x, alpha))), x, number(x, 0)))]


def _hard_sigmoid(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    alpha, beta = number(x, node.attributes.get("alpha", 0.2)), number(x, node.attributes.get("beta", 0.5))
    line = node.emit(relax.op.add(node.emit(relax.op.multiply(x, alpha)), beta))
    return [_clip_to(node, line, number(x, 0), number(x, 1))]


def _sign(node: Node) -> list[relax.Expr] | None:
    x = node.tensor(0)
    if not is_float(x):
        return None
    sign = node.emit(relax.op.sign(x))
    return [node.emit(relax.op.where(node.emit(relax.op.isnan(x)), x, sign))]


def _is_inf(node: Node) -> list[relax.Expr]:
    x = node.tensor(0)
    wanted = [
        node.emit(relax.op.equal(x, number(x, value)))
        for name, value in (("detect_positive", np.inf), ("detect_negative", -np.inf))
        if node.attributes.get(name, 1)
    ]
    if not wanted:
        return [node.emit(relax.op.not_equal(node.emit(relax.op.isinf(x)), node.emit(relax.op.isinf(x))))]
    return [wanted[0] if len(wanted) == 1 else node.emit(relax.op.logical_or(*wanted))]


def _dropout(node: Node) -> list[relax.Expr]:
    # Without a ratio nothing is left out, in training mode either.
    ratio = node.array(1) if node.has(1) else np.array(node.attributes.get("ratio", 0.5))
    training = node.array(2) if node.has(2) else np.array(False)
    if (training is None or bool(training.any())) and (ratio is None or bool(ratio.any())):
        raise RefusalError(
            f"Dropout {node.name!r} is in training mode, or may be; a built model gives the same result each run"
        )
    x = node.tensor(0)
    return [x, node.emit(relax.op.full(relax.ShapeExpr(node.shape(0)), constant(np.array(True)), "bool"))]


def _dynamic_quantize_linear(node: Node) -> list[relax.Expr]:
    x, zero = node.tensor(0), relax.const(0.0, "float32")
    line = reshape(node, x, [product(node.shape(0))])
    low = choose(node, relax.op.less, node.emit(relax.op.min(line)), zero)
    high = choose(node, relax.op.greater, node.emit(relax.op.max(line)), zero)
    steps = relax.const(255.0, "float32")
    scale = node.emit(relax.op.divide(node.emit(relax.op.subtract(high, low)), steps))
    # Where all elements are 0 any scale will do; onnxruntime has 1.
    scale = node.emit(relax.op.where(node.emit(relax.op.equal(scale, zero)), relax.const(1.0, "float32"), scale))
    first = node.emit(relax.op.divide(node.emit(relax.op.subtract(zero, low)), scale))
    point = node.emit(relax.op.round(_clip_to(node, first, zero, steps)))
    codes = node.emit(relax.op.add(node.emit(relax.op.round(node.emit(relax.op.divide(x, scale)))), point))
    # Of NaN any code will do, so that these are two instructions, not selections.
    codes = node.emit(relax.op.clip(codes, 0, 255))
    return [node.emit(relax.op.astype(codes, "uint8")), scale, node.emit(relax.op.astype(point, "uint8"))]


CONVERTERS: Mapping[str, Converter] = {
    "Max": _extremum(relax.op.greater),
    "Min": _extremum(relax.op.less),
    "Clip": _clip,
    "Relu": _relu,
    "Elu": _elu,
    "Selu": _selu,
    "PRelu": _prelu,
    "ThresholdedRelu": _thresholded_relu,
    "HardSigmoid": _hard_sigmoid,
    "Sign": _sign,
    "IsInf": _is_inf,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
}
