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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softq.methods._contract import Fitted, Method, Options, OptionValue, option
from softq.methods._softmax import softmax
from softq.methods._uniform import TOPS, steps_of, top_option, uniform_codes
from softq.rowprog import DType, Trace, Value


@dataclass(frozen=True)
class UniformOptions(Options):
    """Width of the codes and what the greatest code stands for."""

    bits: OptionValue = option(8, "bits of a code", low=2, high=16)
    top: OptionValue = top_option()


def _levels(options: Options) -> int:
    assert isinstance(options, UniformOptions)
    return 2 ** int(options.bits) - 1


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, UniformOptions)
    levels = _levels(options)
    steps, p = steps_of(t, options, options.top, levels), softmax(t)
    codes = uniform_codes(t, p, steps, levels)
    return {"weights": t.cast(codes, DType.U16), "normalizer": p.normalizer(t, steps)}


def _parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    if "top" not in fitted:
        return {}
    top = np.atleast_1d(np.asarray(fitted["top"], dtype=np.float64))
    steps = (_levels(options) / top).astype(np.float32)
    return {"steps": steps if options.fitted["top"] == "site" else steps.reshape(-1, 1, 1)}


def _candidates(options: Options, name: str) -> Sequence[float]:
    return TOPS


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
