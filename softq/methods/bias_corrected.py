"""Uniform codes of the probabilities less their mean error: q = min(rint(p / scale), 2^b - 1), p~ = q * scale - beta.

Source: Pandey et al., Softmax Bias Correction for Quantized Generative Models, ICCV 2023 workshop, arXiv 2309.01729
(its code is not public; the closed form of beta is derived here). Most probabilities of a long row lie below half a
step and become 0, so that the rows of P' sum to less than 1: an error with a mean, beta = E[p' - p], that is taken off.
As the exact row sums to 1, beta of some rows is (sum of their q * scale - number of rows) / number of their elements.
Masked elements are neither counted nor corrected: their weight stays 0. So are elements more than 86.5 below the row's
greatest, whose exponential is 0, because a mask of finite numbers cannot be told from scores otherwise.
With bias=query each row has its own beta from its own sum, which needs no data and makes each row sum to 1. With
bias=site (the paper's per tensor) or bias=head beta is measured on calibration data, and is right for rows of about
their length. In hardware beta goes into the offset of the quantizer, p~ = scale * (q - z) with the real zero point
z = beta / scale, of which at least 8 fraction bits are to be kept: |beta| is far below a step. Where the product with V
does not subtract zero points yet, it costs one sum of the unmasked rows of V.
Input: any f32; -inf is masked, +inf takes all the weight. p is the exact softmax.
Integers: code q in [0, 2^b - 1] and scale = top / (2^b - 1), as in `uniform`. Weights q - z in f32, normalizer
1 / scale.
Accumulator: the sum of a row's codes (bias=query only), u32: it cannot overflow for N <= (2^32 - 1) / (2^b - 1), which
is 65,537 with 16 bits; range analysis refuses greater N.
Error: |p~ - p| <= scale / 2 + |beta| below saturation. p~ may be negative where beta > 0.
Calibration: optional; beta in closed form from the sums of the quantized rows, per site or per head; `top` by the
squared error of the attention output P V, together with beta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from softq.methods import FITTED_SCOPES, Auto, Error, Method, Outputs, Sample, Scope, option
from softq.methods._fitted import Given, check_resolved, per_head, take
from softq.methods._softmax import softmax
from softq.methods.uniform import LEAST_TOP, TOPS, UniformOptions, quantize, steps_of
from softq.rowprog import DType, Trace
from softq.rowprog.library import EXP_LIMIT


@dataclass(frozen=True)
class BiasCorrectedOptions(UniformOptions):
    """Those of `uniform`, and what is taken off."""

    bias: float | Auto | Literal["query"] | Scope = option(
        "auto", "mean error of an element, which is taken off; or measure one per site or head on data, or take each "
        "row's (query) own from its sum; auto: head where there are calibration data, else query",
        low=-1.0, high=1.0,
    )  # fmt: skip


def _resolve(options: BiasCorrectedOptions, calibrated: bool) -> BiasCorrectedOptions:
    return replace(options, bias="head" if calibrated else "query") if options.bias == "auto" else options


def _zero_point_of(options: BiasCorrectedOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    return {"zero_point": float(fitted.get("bias", options.bias)) * steps_of(options, fitted)["steps"]}


def _trace(t: Trace, options: BiasCorrectedOptions) -> Outputs:
    check_resolved(t, options, "bias")
    p = softmax(t)
    codes, steps = quantize(t, options, p)
    whole = t.cast(codes, DType.U32)
    # Where the exponential is not 0: not in masked elements, also under a mask of a great finite number.
    part = p.from_zero(t) <= EXP_LIMIT
    if options.bias in FITTED_SCOPES:
        greatest = options.levels / LEAST_TOP
        wanted = Given("zero_point", -greatest, greatest, "bias / scale, in codes")
        (zero_point,) = take(t, options, "bias", _zero_point_of, wanted)
    elif options.bias == "query":
        # The exact probabilities of a row sum to 1, with `steps` codes.
        count = t.max(t.row_sum(t.select(part, t.const(1, DType.I32), t.const(0, DType.I32))), 1)
        zero_point = t.divide(t.cast(t.row_sum(whole), DType.F32) - steps, t.cast(count, DType.F32))
    else:
        zero_point = t.const(float(options.bias), DType.F32) * steps
    weights = t.select(part, codes - zero_point, 0.0)
    return {"weights": weights, "normalizer": p.normalizer(t, steps), "codes": whole}


def _fit(options: BiasCorrectedOptions, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    tops = TOPS if "top" in options.fitted else [float(options.top)]
    both = ({"top": top, "bias": mean_bias(samples, options.levels / top, options.levels)} for top in tops)
    tried = [{name: numbers[name] for name in options.fitted} for numbers in both]
    return min(tried, key=error) if len(tried) > 1 else tried[0]


def mean_bias(samples: Sequence[Sample], steps: float, levels: int) -> float:
    """Return the mean of p' - p over the elements that take part, from the sums of the quantized rows."""
    surplus, count = 0.0, 0
    for sample in samples:
        scores = sample.scores.astype(np.float64)
        distance = scores.max(axis=-1, keepdims=True) - scores
        e = np.exp(-distance)
        codes = np.minimum(np.rint(e / e.sum(axis=-1, keepdims=True) * steps), levels)
        surplus += float(codes.sum()) / steps - len(scores)
        count += int(np.sum(distance <= EXP_LIMIT))
    return surplus / count if count else 0.0


METHOD = Method(
    name="bias-corrected",
    summary="Exact softmax, then equal steps, less the mean error of an element.",
    source="Pandey et al., Softmax Bias Correction, ICCV 2023 workshop, arXiv 2309.01729",
    options=BiasCorrectedOptions,
    trace=_trace,
    drop_in=True,
    calibration="optional: the mean error of an element per head (bias=site: site); without data from each row's sum",
    resolve=_resolve,
    parameters=per_head(top=steps_of, bias=_zero_point_of),
    fit=_fit,
)
