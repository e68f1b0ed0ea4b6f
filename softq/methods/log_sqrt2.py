"""Half powers of two of the probabilities: c = rint(-2 log2(p / scale)), p' = scale * 2^(-c / 2), as two log2 codes.

Source: RepQ-ViT (Li et al., ICCV 2023, arXiv 2212.08254; zkkli/RepQ-ViT@a160561) and RepQuant (arXiv 2402.05628), the
quantizer for the output of the softmax and its reparameterization to log2. A code c is decoded as

    p' = scale * 2^-k * (sqrt(2) if c is odd else 1),   k = ceil(c / 2),

so it is the log2 code k with one of two scales, chosen by the parity of c for each element. That is exact; one scale
for a whole tensor would not be, and 1 + 1/2 for sqrt(2) is another method. Integer hardware sums V shifted by even
and by odd codes apart, and one multiplication for each output joins them: scale * (even + sqrt(2) * odd).
In the authors' code the codes run to 2^b - 1 with zero beyond them; by default the greatest code of b bits is zero here
(zero=beyond is theirs).
Input: any f32; -inf is masked, +inf takes all the weight. p is the exact softmax. p above `scale` saturates there.
Integers: code c of b bits (with 8 bits, from 250 on the code of zero: 2^-125 is as good as zero); weights 2^(-c / 2),
rounded once to f32 where c is odd, and 1 / scale as their normalizer, applied behind the product with V.
Accumulator: none in the program; the product with V is a shift by k, with half the range of log2's.
Error: p' / p in [2^-0.25, 2^0.25] for p in [scale * 2^(-(2^b - 2.5) / 2), scale], 0 below. The row's sum is not 1.
Calibration: optional; of the 99.9th, 99.99th and 99.999th percentiles of p, masked elements left out, `scale` is
the one with the least squared error of p, per site or per head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softq.methods import Auto, Error, Method, Outputs, Sample, Scope, option
from softq.methods._fitted import Given, fit_if_calibrated, per_head, take
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import Zero, levels, minus_log2, softmax, to_codes, zero_option
from softq.rowprog import DType, Trace, Value

_LEAST_SCALE = 2.0**-24
_PERCENTILES = (99.9, 99.99, 99.999)
_MOST_CODES = 250


@dataclass(frozen=True)
class LogSqrt2Options(FloatOptions):
    """Width of the codes and what the first one stands for."""

    bits: int = option(4, "bits of a code", low=2, high=8)
    scale: float | Auto | Scope = option(
        "auto", "probability that code 0 stands for, or fit one per site or head; auto: fitted per site where there "
        "are calibration data, else 1", low=_LEAST_SCALE, high=1.0,
    )  # fmt: skip
    zero: Zero = zero_option()


def _top(options: LogSqrt2Options) -> int:
    """Return the code of zero."""
    return min(levels(options.bits, options.zero), _MOST_CODES)


def _steps(options: LogSqrt2Options, fitted: Mapping[str, float]) -> dict[str, float]:
    return {"steps": 1 / float(fitted.get("scale", options.scale))}


def _trace(t: Trace, options: LogSqrt2Options) -> Outputs:
    steps: Value | None = None
    if options.scale != 1.0:
        (steps,) = take(t, options, "scale", _steps, Given("steps", 1.0, 1 / _LEAST_SCALE, "1 / scale"))
    p = softmax(t)
    codes = to_codes(t, minus_log2(t, p, rate=t.const(2.0, DType.F32), steps=steps), _top(options))
    # The log2 code (c + 1) / 2 with the scale of its parity.
    table = [(math.sqrt(2) if c % 2 else 1.0) * 2.0 ** -((c + 1) // 2) for c in range(_top(options))]
    return {
        "weights": t.lut(t.table([*table, 0.0], DType.F32), codes),
        "normalizer": p.normalizer(t, t.const(1.0, DType.F32) if steps is None else steps),
        "codes": codes,
    }


def _fit(options: LogSqrt2Options, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    parts = [_probabilities(sample.scores.astype(np.float64)) for sample in samples]
    if not parts:
        return {"scale": 1.0}
    p = np.concatenate(parts)
    scales = [min(max(float(s), _LEAST_SCALE), 1.0) for s in np.percentile(p, _PERCENTILES)]
    return {"scale": min(scales, key=lambda scale: _squared_error(p, scale, _top(options)))}


def _probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True))[scores > -math.inf]


def _squared_error(p: NDArray[np.float64], scale: float, top: int) -> float:
    with np.errstate(divide="ignore"):  # a p of 0, far below its row's greatest, has the code of zero
        c = np.clip(np.rint(-2 * np.log2(p / scale)), 0, top)
    return float(np.sum((np.where(c < top, scale * 2.0 ** (-c / 2), 0.0) - p) ** 2))


METHOD = Method(
    name="log-sqrt2",
    summary="Exact softmax, then the nearest half power of two: a log2 code with one of two scales.",
    source="RepQ-ViT, Li et al., ICCV 2023, arXiv 2212.08254, and RepQuant, arXiv 2402.05628; the zero code is softq's",
    options=LogSqrt2Options,
    trace=_trace,
    drop_in=True,
    calibration="optional: takes for scale the best of three percentiles of p, per site (with scale=head per head)",
    resolve=fit_if_calibrated(scale=lambda options: 1.0),
    parameters=per_head(scale=_steps),
    fit=_fit,
)
