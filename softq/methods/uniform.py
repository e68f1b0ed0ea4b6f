"""Uniform quantization of the probabilities: q = min(rint(p / scale), 2^b - 1), p' = q * scale.

Source: the usual uniform quantizer of post-training quantization with zero point 0; scale = 1 / (2^b - 1) makes the
greatest code stand for p = 1 (ONNX QuantizeLinear with that scale). p is the exact softmax (`exact`).
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: code q in [0, 2^b - 1], scale 1 / (2^b - 1) * `top`, where `top` in (0, 1] is the probability that the
greatest code stands for; greater ones saturate. The program returns the codes as weights, and 1 / scale as their
normalizer, so that the scale can be applied behind the product with V.
Accumulator: none in the program; codes times int8 V need b + 8 + log2(N) bits.
Error: |p' - p| <= scale / 2 below saturation. The row's sum is not 1: small probabilities are rounded to 0.
Calibration: `top` can be fitted, per site or per head, on the squared error of the attention output P V.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softq.methods import Method, Outputs, Scope, option
from softq.methods._fitted import Given, per_head, take
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import Softmax, softmax
from softq.rowprog import DType, Trace, Value

LEAST_TOP = 2.0**-12
TOPS = tuple(2.0 ** (-k / 4) for k in range(33))
"""What is tried for `top`."""


@dataclass(frozen=True)
class UniformOptions(FloatOptions):
    """Width of the codes and what the greatest code stands for."""

    bits: int = option(8, "bits of a code", low=2, high=16)
    top: float | Scope = option(
        1.0, "probability that the greatest code stands for, or fit one per site or head", low=LEAST_TOP, high=1.0
    )

    @property
    def levels(self) -> int:
        """The greatest code."""
        return 2**self.bits - 1


def steps_of(options: UniformOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    """Return 1 / scale, the codes in the probability 1."""
    return {"steps": options.levels / float(fitted.get("top", options.top))}


def quantize(t: Trace, options: UniformOptions, p: Softmax) -> tuple[Value, Value]:
    """Return the codes, row of whole f32 numbers, and `steps`, scalar of f32."""
    most = options.levels / LEAST_TOP
    wanted = Given("steps", options.levels, most, "1 / scale: codes in the probability 1")
    (steps,) = take(t, options, "top", steps_of, wanted)
    return t.clamp(t.rint(p.scale(t, steps)), 0.0, float(options.levels)), steps


def _trace(t: Trace, options: UniformOptions) -> Outputs:
    p = softmax(t)
    codes, steps = quantize(t, options, p)
    return {"weights": t.cast(codes, DType.U16), "normalizer": p.normalizer(t, steps)}


METHOD = Method(
    name="uniform",
    summary="Exact softmax, then equal steps between 0 and the greatest probability.",
    source="uniform quantizer with zero point 0 (ONNX operator QuantizeLinear)",
    options=UniformOptions,
    trace=_trace,
    drop_in=True,
    calibration="optional: top=site or top=head fits the range of the codes on the error of P V",
    parameters=per_head(top=steps_of),
    candidates=lambda options, name: TOPS,
)
