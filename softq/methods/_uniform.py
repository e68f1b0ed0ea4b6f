"""What the methods with uniform codes of the probabilities share: the option `top`, how it is given, and the codes."""

from __future__ import annotations

from softq.methods._contract import FITTED_SCOPES, Options, OptionValue, option
from softq.methods._softmax import Softmax
from softq.rowprog import DType, Trace, Value

LEAST_TOP = 2.0**-12

TOPS = tuple(2.0 ** (-k / 4) for k in range(33))
"""What is tried for `top`."""


def top_option() -> OptionValue:
    """Return the option for the probability that the greatest code stands for."""
    return option(
        1.0, "probability that the greatest code stands for, or fit one a site or head", low=LEAST_TOP, high=1.0,
        words=tuple(FITTED_SCOPES),
    )  # fmt: skip


def steps_of(t: Trace, options: Options, top: OptionValue, levels: int) -> Value:
    """Return 1 / scale, scalar of f32: the parameter `steps` if `top` is fitted."""
    if top in FITTED_SCOPES:
        scope = options.fitted["top"]
        return t.param("steps", scope, DType.F32, levels, levels / LEAST_TOP, "1 / scale: codes in the probability 1")
    return t.const(levels / float(top), DType.F32)


def uniform_codes(t: Trace, p: Softmax, steps: Value, levels: int) -> Value:
    """Return min(rint(p * steps), levels), row of f32."""
    return t.clamp(t.rint(p.scaled(t, steps)), 0.0, float(levels))
