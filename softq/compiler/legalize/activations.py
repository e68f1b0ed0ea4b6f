"""The activations of ONNX's recurrent operators, as arithmetic of a name for the argument; NaN gives NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx

from softq.compiler.legalize import elementwise
from softq.compiler.tir.expressions import Names

Expr = Any
Function = Callable[[Expr, float, float], Expr]


def _f(value: float) -> Expr:
    return tirx.FloatImm("float32", value)


def _positive(x: Expr, other: Expr) -> Expr:
    """Return x where it is positive or NaN, else the other."""
    return tirx.Select(x <= _f(0.0), other, x)


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    names = Names()
    line = names.bind("line", x * _f(alpha) + _f(beta))
    low = tirx.Select(line < _f(0.0), _f(0.0), line)
    return names.around(tirx.Select(line > _f(1.0), _f(1.0), low))


def _softplus(x: Expr, alpha: float, beta: float) -> Expr:
    """Return log(1 + e^x) = max(x, 0) + log(1 + e), e = e^-|x|.

    With s = e / (2 + e), at most 1/3, the logarithm is 2 artanh(s); its series to s^17 is within 1e-10.
    """
    names = Names()
    less = names.bind("less", tirx.Select(x > _f(0.0), _f(0.0) - x, x))
    e = names.bind("e", elementwise.exp(less))
    s = names.bind("s", e / (_f(2.0) + e))
    series: Expr = _f(1 / 17)
    for k in range(15, 0, -2):
        series = series * (s * s) + _f(1 / k)
    return _positive(x, _f(0.0)) + names.around(_f(2.0) * s * series)


ACTIVATIONS: Mapping[str, Function] = {
    "Relu": lambda x, alpha, beta: _positive(x, _f(0.0)),
    "Tanh": lambda x, alpha, beta: elementwise.tanh(x),
    "Sigmoid": lambda x, alpha, beta: elementwise.sigmoid(x),
    "Affine": lambda x, alpha, beta: x * _f(alpha) + _f(beta),
    "LeakyRelu": lambda x, alpha, beta: _positive(x, x * _f(alpha)),
    "ThresholdedRelu": lambda x, alpha, beta: tirx.Select(x <= _f(alpha), _f(0.0), x),
    "ScaledTanh": lambda x, alpha, beta: _f(alpha) * elementwise.tanh(_f(beta) * x),
    "HardSigmoid": _hard_sigmoid,
    "Elu": lambda x, alpha, beta: _positive(x, (elementwise.exp(x) - _f(1.0)) * _f(alpha)),
    "Softsign": lambda x, alpha, beta: x / (_f(1.0) + tirx.Select(x < _f(0.0), _f(0.0) - x, x)),
    "Softplus": _softplus,
}
"""What is computed of a number, alpha and beta, by the operator's name."""
