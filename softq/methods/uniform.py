"""Uniform quantization of the probabilities: q = min(rint(p / scale), 2^b - 1), p' = q * scale.

Source: the usual uniform quantizer of post-training quantization with zero point 0; scale = 1 / (2^b - 1) makes the
greatest code stand for p = 1 (ONNX QuantizeLinear with that scale). p is the exact softmax (`exact`).
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: code q in [0, 2^b - 1], scale 1 / (2^b - 1) * `top`, where `top` in (0, 1] is the probability that the
greatest code stands for; greater ones saturate. The program returns the codes as weights, and 1 / scale as their
normalizer, so that the scale can be applied behind the product with V.
Accumulator: none in the program; codes times int8 V need b + 8 + log2(N) bits.
Error: |p' - p| <= scale / 2 below saturation. The row's sum is not 1: small probabilities are rounded to 0.
Calibration: `top` can be fitted, one a site or one a head, on the squared error of the attention output P V.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softq.methods._contract import FITTED_SCOPES, Fitted, Method, Options, OptionValue, option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import distance, exp_minus

_LEAST_TOP = 2.0**-12


@dataclass(frozen=True)
class UniformOptions(Options):
    """Width of the codes and what the greatest code stands for."""

    bits: OptionValue = option(8, "bits of a code", low=2, high=16)
    top: OptionValue = option(
        1.0, "probability that the greatest code stands for, or fit one a site or head", low=_LEAST_TOP, high=1.0,
        words=tuple(FITTED_SCOPES),
    )  # fmt: skip


def _levels(options: Options) -> int:
    assert isinstance(options, UniformOptions)
    return 2 ** int(options.bits) - 1


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, UniformOptions)
    levels = _levels(options)
    if options.top in FITTED_SCOPES:
        scope = options.fitted["top"]
        steps = t.param("steps", scope, DType.F32, levels, levels / _LEAST_TOP, "1 / scale: codes in the probability 1")
    else:
        steps = t.const(levels / float(options.top), DType.F32)
    d = distance(t)
    e = exp_minus(t, d.row)
    total = t.row_sum(e)
    # One product instead of a division an element; at least 1 in the divisor, so that a fully masked row has codes 0.
    codes = t.clamp(t.rint(e * t.divide(steps, t.max(total, 1.0))), 0.0, float(levels))
    normalizer = t.select(d.is_nan, math.nan, t.select(total <= 0.0, 0.0, steps))
    return {"weights": t.cast(codes, DType.U16), "normalizer": normalizer}


def _parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    if "top" not in fitted:
        return {}
    top = np.atleast_1d(np.asarray(fitted["top"], dtype=np.float64))
    steps = (_levels(options) / top).astype(np.float32)
    return {"steps": steps if options.fitted["top"] == "site" else steps.reshape(-1, 1, 1)}


def _candidates(options: Options, name: str) -> Sequence[float]:
    return [2.0 ** (-k / 4) for k in range(33)]


METHOD = Method(
    name="uniform",
    summary="Exact softmax, then equal steps between 0 and the greatest probability.",
    source="uniform quantizer with zero point 0 (ONNX operator QuantizeLinear)",
    options=UniformOptions,
    trace=_trace,
    integer_scores=False,
    drop_in=True,
    calibration="optional: top=site or top=head fits the range of the codes on the error of P V",
    contract=False,
    parameters=_parameters,
    candidates=_candidates,
)
