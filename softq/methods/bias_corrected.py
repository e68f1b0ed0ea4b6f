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
Calibration: optional; beta in closed form from the sums of the quantized rows, one a site or one a head; `top` by the
squared error of the attention output P V, together with beta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods._bias import corrected, row_zero_point
from softq.methods._contract import FITTED_SCOPES, Error, Fitted, Method, Options, OptionValue, Sample, option
from softq.methods._softmax import softmax
from softq.methods._uniform import LEAST_TOP, TOPS, steps_of, top_option, uniform_codes
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import EXP_LIMIT

_QUERY = "query"


@dataclass(frozen=True)
class BiasCorrectedOptions(Options):
    """Width of the codes, what the greatest code stands for, and what is taken off."""

    bits: OptionValue = option(8, "bits of a code", low=2, high=16)
    top: OptionValue = top_option()
    bias: OptionValue = option(
        "auto", "mean error of an element, which is taken off; or measure one a site or head on data, or take each "
        "row's (query) own from its sum; auto: head where there are calibration data, else query",
        low=-1.0, high=1.0, words=("auto", _QUERY, *FITTED_SCOPES),
    )  # fmt: skip


def _resolve(options: Options, calibrated: bool) -> Options:
    assert isinstance(options, BiasCorrectedOptions)
    return replace(options, bias="head" if calibrated else _QUERY) if options.bias == "auto" else options


def _levels(options: BiasCorrectedOptions) -> int:
    return 2 ** int(options.bits) - 1


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, BiasCorrectedOptions)
    if options.bias == "auto":
        raise UsageError("bias-corrected: bias is auto; resolve() the options first")
    levels = _levels(options)
    steps, p = steps_of(t, options, options.top, levels), softmax(t)
    codes = uniform_codes(t, p, steps, levels)
    whole = t.cast(codes, DType.U32)
    if options.bias in FITTED_SCOPES:
        scope, greatest = options.fitted["bias"], levels / LEAST_TOP
        zero_point = t.param("zero_point", scope, DType.F32, -greatest, greatest, "bias / scale, in codes")
    elif options.bias == _QUERY:
        zero_point = row_zero_point(t, p, whole, steps)
    else:
        zero_point = t.const(float(options.bias), DType.F32) * steps
    return {"weights": corrected(t, p, codes, zero_point), "normalizer": p.normalizer(t, steps), "codes": whole}


def _parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    assert isinstance(options, BiasCorrectedOptions)
    given = {name: fitted.get(name, getattr(options, name)) for name in ("top", "bias")}
    numbers = {k: np.asarray(v, dtype=np.float64).reshape(-1) for k, v in given.items() if not isinstance(v, str)}
    steps = _levels(options) / numbers["top"]
    values = {"steps": steps} if "top" in fitted else {}
    values |= {"zero_point": numbers["bias"] * steps} if "bias" in fitted else {}
    shape = (-1,) if "site" in options.fitted.values() else (-1, 1, 1)
    return {name: value.astype(np.float32).reshape(shape) for name, value in values.items()}


def _fit(options: Options, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    assert isinstance(options, BiasCorrectedOptions)
    tops = TOPS if "top" in options.fitted else [float(options.top)]
    found: list[dict[str, float]] = []
    for top in tops:
        numbers = {"top": top, "bias": mean_bias(samples, _levels(options) / top, _levels(options))}
        found.append({name: numbers[name] for name in options.fitted})
    return min(found, key=error) if len(found) > 1 else found[0]


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
    integer_scores=False,
    drop_in=True,
    calibration="optional: the mean error of an element a head (or bias=site a site); without data from each row's sum",
    contract=False,
    resolve=_resolve,
    parameters=_parameters,
    fit=_fit,
)
