"""Elementary functions of float32 as arithmetic: no calls into a C library, so that loops over them vectorise.

Each is a formula over TVM's expressions of a name for its argument. The errors stated are measured by
`tests/test_native_elementwise.py` against float64; NaN gives NaN everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import te, tirx

from softq.compiler.tir.expressions import Names
from softq.rowprog.library import EXP_Q, LN2_HIGH, LN2_LOW, LOG2_E

Expr = Any
Function = Callable[[Expr], Expr]


def _f(value: float) -> Expr:
    return tirx.FloatImm("float32", value)


def _f64(value: float) -> Expr:
    return tirx.FloatImm("float64", value)


def _clamp(names: Names, x: Expr, low: float, high: float) -> Expr:
    """Return x within [low, high]; a NaN stays one, as both comparisons are false for it."""
    above = names.bind("above", tirx.Select(x < _f(low), _f(low), x))
    return names.bind("near", tirx.Select(above > _f(high), _f(high), above))


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return the polynomial with these coefficients, the highest power first."""
    result: Expr = _f(coefficients[0])
    for c in coefficients[1:]:
        result = result * x + _f(c)
    return result


def _nearest(names: Names, x: Expr) -> Expr:
    """Return an integer within 1/2 of |x| < 2^31, as int32; NaN gives some integer."""
    safe = names.bind("safe", tirx.Select(x == x, x, _f(0.0)))
    return names.bind("n", (safe + tirx.Select(safe < _f(0.0), _f(-0.5), _f(0.5))).astype("int32"))


def _power_of_two(n: Expr) -> Expr:
    """Return 2^n for n in [-126, 127]."""
    return tirx.reinterpret("float32", (n + 127) << 23)


def exp(x: Expr) -> Expr:
    """Return e^x, within 2e-7 relative; subnormal results too, infinity from 88.73 on.

    Range reduction by ln 2 in two parts (Cody and Waite), the polynomial of `softq.rowprog.library`, and 2^n in two
    factors, because its exponent leaves that of normal numbers at both ends.
    """
    names = Names()
    near = _clamp(names, x, -104.0, 89.0)
    n = _nearest(names, names.bind("quotient", near * _f(LOG2_E)))
    r = names.bind("r", (near - n.astype("float32") * _f(LN2_HIGH)) - n.astype("float32") * _f(LN2_LOW))
    value = r * r * _horner(r, list(reversed(EXP_Q))) + r + _f(1.0)
    half = names.bind("half", n >> 1)
    return names.around(value * _power_of_two(half) * _power_of_two(n - half))


# Rational approximations of odd functions, x P(x^2) / Q(x^2), from Eigen (MathFunctionsImpl.h and
# SpecialFunctionsImpl.h, MPL-2.0; the numbers alone are taken).
_ERF_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
          -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
          -1.42647390514189e-02)  # fmt: skip
_TANH_P = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
           1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


def _rational(x: Expr, most: float, above: Sequence[float], below: Sequence[float]) -> Expr:
    """Return x P(x^2) / Q(x^2) for |x| up to `most`, and its value there beyond."""
    names = Names()
    near = _clamp(names, x, -most, most)
    square = names.bind("square", near * near)
    return names.around(near * _horner(square, above) / _horner(square, below))


def erf(x: Expr) -> Expr:
    """Return the error function, within 4e-7."""
    return _rational(x, 4.0, _ERF_P, _ERF_Q)


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent, within 3e-7."""
    return _rational(x, 9.0, _TANH_P, _TANH_Q)


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + e^-x), within 3e-7 relative where the result is a normal number."""
    names = Names()
    return names.around(_f(1.0) / (_f(1.0) + exp(names.bind("minus", _f(0.0) - x))))


# log(1 + f) = f - f^2/2 + f^3 P(f) on [sqrt(1/2) - 1, sqrt(2) - 1]: Cephes, logf.c (S. Moshier); numbers alone.
_LOG_P = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
          2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip


def log(x: Expr) -> Expr:
    """Return the natural logarithm, within 2e-7 relative or absolute; -inf at 0, NaN below."""
    names = Names()
    tiny = x < _f(2.0**-126)
    scaled = tirx.Select(tiny, x * _f(2.0**25), x)  # subnormal numbers become normal ones
    bits = names.bind("bits", tirx.reinterpret("int32", scaled))
    # The exponent that brings the mantissa into [sqrt(1/2), sqrt(2)).
    e = names.bind("e", (bits - tirx.IntImm("int32", 0x3F3504F3)) >> 23)
    f = names.bind("f", tirx.reinterpret("float32", bits - (e << 23)) - _f(1.0))
    n = names.bind("n", (e - tirx.Select(tiny, tirx.IntImm("int32", 25), tirx.IntImm("int32", 0))).astype("float32"))
    value = f * f * f * _horner(f, _LOG_P) + n * _f(LN2_LOW) - _f(0.5) * f * f + f + n * _f(LN2_HIGH)
    value = tirx.Select(x < _f(float("inf")), value, x)  # infinity and NaN stay
    value = tirx.Select(x == _f(0.0), _f(-math.inf), value)
    return names.around(tirx.Select(x < _f(0.0), _f(math.nan), value))


def _sine_of(x: Expr, quarter: int) -> Expr:
    """Return sin(x + quarter pi/2), within 2e-7 for |x| < 2^30; NaN beyond."""
    names = Names()
    inside = tirx.And(x < _f(2.0**30), x > _f(-(2.0**30)))
    safe = names.bind("safe", tirx.Select(inside, x.astype("float64"), _f64(0.0)))
    turns = names.bind("turns", safe * _f64(2 / math.pi))
    n = names.bind("n", (turns + tirx.Select(turns < _f64(0.0), _f64(-0.5), _f64(0.5))).astype("int32"))
    r = names.bind("r", (safe - n.astype("float64") * _f64(math.pi / 2)).astype("float32"))
    k = names.bind("k", (n + quarter) & 3)
    z = names.bind("z", r * r)
    # Cephes, sinf.c: minimax on [-pi/4, pi/4].
    sine = r + r * z * _horner(z, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
    cosine = (
        _f(1.0) - _f(0.5) * z + z * z * _horner(z, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
    )
    value = names.bind("value", tirx.Select((k & 1) == 0, sine, cosine))
    value = tirx.Select((k & 2) == 0, value, _f(0.0) - value)
    return names.around(tirx.Select(inside, value, _f(math.nan)))


def sin(x: Expr) -> Expr:
    """Return the sine, within 2e-7 for |x| < 2^30; NaN beyond."""
    return _sine_of(x, 0)


def cos(x: Expr) -> Expr:
    """Return the cosine, within 2e-7 for |x| < 2^30; NaN beyond."""
    return _sine_of(x, 1)


def gelu(x: Expr) -> Expr:
    """Return x (1 + erf(x / sqrt 2)) / 2."""
    names = Names()
    return names.around(_f(0.5) * x * (_f(1.0) + erf(names.bind("scaled", x * _f(math.sqrt(0.5))))))


def gelu_tanh(x: Expr) -> Expr:
    """Return x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    names = Names()
    inner = names.bind("inner", _f(math.sqrt(2 / math.pi)) * (x + _f(0.044715) * x * x * x))
    return names.around(_f(0.5) * x * (_f(1.0) + tanh(inner)))


def silu(x: Expr) -> Expr:
    """Return x / (1 + e^-x)."""
    return x * sigmoid(x)


def _legalize(name: str, function: Function) -> Callable[[Any, Any], Any]:
    def compute(x: Any) -> Any:
        dtype = str(x.dtype)

        def element(*index: Any) -> Expr:
            # Bound to a name: what computes it may be written in its place.
            names = Names()
            result = names.around(function(names.bind("x", x[index].astype("float32"))))
            return result if dtype == "float32" else result.astype(dtype)

        return te.compute(x.shape, element, name=function.__name__)

    def legalize(builder: Any, call: Any) -> Any:
        if str(call.args[0].ty.dtype) == "float64":
            return tvm.ir.Op.get(name).get_attr("FLegalize")(builder, call)
        return builder.call_te(compute, call.args[0], primfunc_name_hint=function.__name__)

    return legalize


_FUNCTIONS = {"relax": (exp, erf, tanh, sigmoid, log, sin, cos), "relax.nn": (gelu, gelu_tanh, silu)}

LEGALIZE: dict[str, Callable[[Any, Any], Any]] = {
    f"{domain}.{function.__name__}": _legalize(f"{domain}.{function.__name__}", function)
    for domain, functions in _FUNCTIONS.items()
    for function in functions
}
"""What TVM's `LegalizeOps` takes; half precision is computed in float32, float64 keeps TVM's own form."""
