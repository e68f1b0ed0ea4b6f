"""Functions of single elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.random_graph import BOOL, DOUBLE, FLOAT, HALF, I8, I32, I64, U8, Draw, Drawn, Graph

_NUMBERS = (FLOAT, I32, I64)
_FLOATS = (FLOAT, FLOAT, DOUBLE)
_INTEGERS = (I32, I64, U8, I8)


def unary(operator: str, dtypes: Sequence[int] = (FLOAT,), exact: bool = False, **attributes: Any) -> Draw:
    """Return the draw of a function of one tensor."""

    def draw(g: Graph) -> None:
        g.add(operator, [g.pick(dtypes, exact=exact)], **attributes)

    return draw


def _binary(operator: str, dtypes: Sequence[int], exact: bool = False) -> Draw:
    def draw(g: Graph) -> None:
        a = g.pick(dtypes, exact=exact)
        b = g.like(a)
        g.add(operator, [a, b if b.exact or not exact else g.input(a.dtype, a.shape)])

    return draw


def _variadic(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        a = g.pick((FLOAT,))
        g.add(operator, [a, *(g.like(a) for _ in range(g.rng.randint(0, 2)))])

    return draw


def _inside(operator: str, low: float, high: float) -> Draw:
    """Return the draw of a function that is defined from one number to another."""

    def draw(g: Graph) -> None:
        x = g.pick(_FLOATS)
        ends = [g.constant(v, x.dtype) for v in (low, high)]
        (bounded,) = g.add("Clip", [x, *ends])
        g.add(operator, [bounded])

    return draw


def _divisor(g: Graph, a: Drawn) -> Drawn:
    shape = [1 if g.rng.random() < 0.3 else d for d in a.shape]
    array = g.data(a.dtype, shape)
    away = np.where(array < 0, array - 1, array + 1).astype(array.dtype)
    signed = -away if a.dtype in (I32, I64, I8) and g.rng.random() < 0.5 else away
    return g.given(signed, fixed=False)


def _div(g: Graph) -> None:
    a = g.pick((FLOAT, FLOAT, DOUBLE, I32, I64), exact=True)
    g.add("Div", [a, _divisor(g, a)])


def _mod(g: Graph) -> None:
    a = g.pick((FLOAT, I32, I64, U8, I8), exact=True)
    g.add("Mod", [a, _divisor(g, a)], fmod=1 if a.dtype == FLOAT else g.rng.randint(0, 1))


def _pow(g: Graph) -> None:
    x = g.pick((FLOAT,), exact=True)
    if g.rng.random() < 0.6:
        power = g.rng.choice((0.0, 1.0, 2.0, 3.0, -1.0, 0.5))
        g.add("Pow", [x, g.constant(power, g.rng.choice((FLOAT, FLOAT, DOUBLE)))])
        return
    (positive,) = g.add("Exp", [x])
    g.add("Pow", [positive, g.like(x)])


def _bit_shift(g: Graph) -> None:
    # onnxruntime has kernels of some unsigned types alone; ONNX's reference has the others.
    x = g.given(g.data(U8, (3, 5)) * 9, fixed=False)
    y = g.given(g.data(U8, g.rng.choice(((3, 5), (1, 5), (1,)))), fixed=False)
    g.add("BitShift", [x, y], direction=g.rng.choice(("LEFT", "RIGHT")))


def _cast(g: Graph) -> None:
    x = g.pick((FLOAT, DOUBLE, I32, I64, BOOL, U8, I8), exact=True)
    # Negative floats have no unsigned value.
    small = (U8, I8) if x.dtype in (I32, I64, BOOL, U8, I8) else (HALF,)
    g.add("Cast", [x], to=g.rng.choice((FLOAT, DOUBLE, I32, I64, BOOL, *small)))


def _cast_like(g: Graph) -> None:
    x, like = (g.pick((FLOAT, DOUBLE, I32, I64, BOOL), exact=True) for _ in range(2))
    g.add("CastLike", [x, like])


def _bit_cast(g: Graph) -> None:
    x = g.pick((FLOAT, I32, I64, DOUBLE), exact=True)
    pairs: dict[int, int] = {FLOAT: I32, I32: FLOAT, I64: DOUBLE, DOUBLE: I64}
    g.add("BitCast", [x], last=True, to=pairs[x.dtype])


def _clip(g: Graph) -> None:
    x = g.pick((FLOAT, DOUBLE, I32, I64))
    low, high = (0, 2) if x.dtype in (I32, I64) else (-0.5, 0.75)
    bounds = [
        g.constant(v, x.dtype) if g.rng.random() < 0.5 else g.given(np.array(v, x.array.dtype)) for v in (low, high)
    ]
    g.add("Clip", [x, *bounds[: g.rng.choice((1, 2, 2))]])


def _prelu(g: Graph) -> None:
    x = g.pick((FLOAT,), least=1)
    g.add("PRelu", [x, g.input(FLOAT, [x.shape[-1]])])


def _is(operator: str) -> Draw:
    def draw(g: Graph) -> None:
        x = g.pick((FLOAT, DOUBLE))
        if g.rng.random() < 0.5:
            array = g.data(FLOAT, (2, 5))
            array[:, :3] = np.array([np.nan, np.inf, -np.inf], np.float32)
            x = g.given(array, fixed=False)
        g.add(operator, [x])

    return draw


def _where(g: Graph) -> None:
    a = g.pick((FLOAT, I64))
    g.add("Where", [g.like(a, BOOL), a, g.like(a)], moves=True)


def _dropout(g: Graph) -> None:
    g.add("Dropout", [g.pick((FLOAT,))], results=g.rng.choice((1, 2)), moves=True)


def _swiglu(g: Graph) -> None:
    a = g.pick((FLOAT,))
    g.add("SwiGLU", [a, g.input(FLOAT, a.shape)])


_SMOOTH = (
    *("Exp", "Sin", "Cos", "Tanh", "Sigmoid", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign", "Swish"),
    *("Erf", "HardSigmoid", "HardSwish", "Gelu", "Mish", "Celu", "Identity", "Atan", "Asinh", "Sinh", "Cosh"),
)

OPERATORS: dict[str, Draw] = {
    **{name: unary(name) for name in _SMOOTH},
    **{name: unary(name, (FLOAT, FLOAT, DOUBLE, I32, I64)) for name in ("Abs", "Neg", "Relu")},
    **{name: unary(name, _FLOATS, exact=True) for name in ("Floor", "Ceil", "Round", "Tan")},
    "Sign": unary("Sign", (FLOAT, I32, I64), exact=True),
    "ThresholdedRelu": unary("ThresholdedRelu", exact=True),
    "Shrink": unary("Shrink", exact=True, lambd=0.3, bias=0.1),
    "Acos": _inside("Acos", -0.9, 0.9),
    "Asin": _inside("Asin", -0.9, 0.9),
    "Atanh": _inside("Atanh", -0.9, 0.9),
    "Acosh": _inside("Acosh", 1.25, 50.0),
    "Log": _inside("Log", 0.1, 50.0),
    "Sqrt": _inside("Sqrt", 0.1, 50.0),
    "Reciprocal": _inside("Reciprocal", 0.1, 50.0),
    **{name: _binary(name, (*_NUMBERS, DOUBLE)) for name in ("Add", "Sub", "Mul")},
    **{name: _binary(name, (FLOAT, I64, DOUBLE, I32)) for name in ("Min", "Max")},
    **{
        name: _binary(name, (FLOAT, I32, I64, DOUBLE), exact=True)
        for name in ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")
    },
    **{name: _binary(name, (BOOL,)) for name in ("And", "Or", "Xor")},
    **{name: _binary(name, _INTEGERS) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "BitwiseNot": unary("BitwiseNot", _INTEGERS),
    "BitShift": _bit_shift,
    "BitCast": _bit_cast,
    "Sum": _variadic("Sum"),
    "Mean": _variadic("Mean"),
    "Div": _div,
    "Mod": _mod,
    "Pow": _pow,
    "PRelu": _prelu,
    "Not": unary("Not", (BOOL,)),
    "IsNaN": _is("IsNaN"),
    "IsInf": _is("IsInf"),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Where": _where,
    "Clip": _clip,
    "Dropout": _dropout,
    "SwiGLU": _swiglu,
}
