"""A clipped straight line in place of the exponential, calibrated per head, in 8-bit integers.

    u = min(rint(255 (max - x) / D), 255),  w = 255 - rint(u (1 - F)),  p = w / sum(w)

The weight falls from 255 at the maximum along a straight line to 255 F at the distance D, and stays there. D and F,
from 0 to 1, are calibrated for each head.

Source: HCCS, Danopoulos et al., Taming the Exponential, arXiv 2604.02292 (2026): a clipped linear map of the scores
below their maximum, bounded, monotone, not negative, with few parameters for each head, for the int8 multipliers of
AMD's AI Engines. Only its abstract and introduction could be read: how it names and finds its parameters, and its
division by shifts, are not here. What D and F are fitted on is softq's: the squared error of P V.
The paper retrains models with it, and reports more than 20% of accuracy lost where it merely takes the softmax's place:
it serves models that are trained for it.
Input: any f32; -inf is masked, +inf takes all the weight. 8-bit integers with a step of `step` per unit.
Integers: u and w, unsigned, 8 bits. Masked elements weigh 0, and so do float scores 104 or more below the maximum; all
others weigh 255 F at least.
Normalizer: u32 sum of weights; cannot overflow for N <= 2^24.
8-bit integer scores: u = (d M + 2^(s-1)) >> s with M / 2^s = 255 step / D, within 31 bits; 1 - F likewise.
Error: none is bounded: at D = 6, F = 0 the line is off e^-d by up to 0.53 of the maximum's weight.
Calibration: optional; D and F are searched together, per site or per head. Without data D = 2.5 and F = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softq.errors import UsageError
from softq.methods import FITTED_SCOPES, Auto, Error, Method, Options, Outputs, Sample, Scope, option
from softq.methods._fitted import Given, fit_if_calibrated, per_head, take
from softq.methods._scale import integer_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance, rounded_multiple

_TOP = 255
_LEAST_REACH, _GREATEST_REACH = 0.25, 64.0
_REACHES = [0.5 * 2 ** (k / 3) for k in range(15)]
_FLOORS = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)


@dataclass(frozen=True)
class HccsOptions(Options):
    """Where the line ends."""

    reach: float | Auto | Scope = option(
        "auto", "the distance from the maximum at which the line ends, or fitted per site or head; auto: per site "
        "where there are calibration data, else 2.5", low=_LEAST_REACH, high=_GREATEST_REACH,
    )  # fmt: skip
    floor: float | Auto | Scope = option(
        "auto", "what is left there of the weight of the maximum, or fitted per site or head; auto: per site where "
        "there are calibration data, else 0", low=0.0, high=0.9,
    )  # fmt: skip
    step: float = integer_step()


def _rate(options: HccsOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    return {"rate": _TOP / float(fitted.get("reach", options.reach))}


def _slope(options: HccsOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    return {"slope": 1 - float(fitted.get("floor", options.floor))}


def _trace(t: Trace, options: HccsOptions) -> Outputs:
    if not t.scores.dtype.is_float:
        if options.reach in FITTED_SCOPES or options.floor in FITTED_SCOPES:
            raise UsageError(f"hccs of {t.scores.dtype.value} scores: reach and floor are fitted; give numbers")
        d = integer_distance(t, float(options.reach) / _TOP, _TOP, options.step)
        fallen = rounded_multiple(t, d.row, _slope(options, {})["slope"], _TOP)
    else:
        (rate,) = take(
            t, options, "reach", _rate,
            Given("rate", _TOP / _GREATEST_REACH, _TOP / _LEAST_REACH, "units a unit of distance: 255 / reach"),
        )  # fmt: skip
        (slope,) = take(t, options, "floor", _slope, Given("slope", 0.0, 1.0, "what a unit takes off: 1 - floor"))
        d = integer_distance(t, 1.0, _TOP, rate=rate)
        fallen = t.cast(t.rint(t.cast(d.row, DType.F32) * slope), DType.I32)
    weights = d.weigh(t.cast(_TOP - fallen, DType.U32))
    return {"weights": weights, "normalizer": d.normalizer(t.row_sum(weights))}


def _fit(options: HccsOptions, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    reaches = _REACHES if "reach" in options.fitted else [float(options.reach)]
    floors = _FLOORS if "floor" in options.fitted else [float(options.floor)]
    tried = [{"reach": reach, "floor": floor} for reach in reaches for floor in floors]
    return min(({name: one[name] for name in options.fitted} for one in tried), key=error)


METHOD = Method(
    name="hccs",
    summary="A clipped straight line in place of the exponential, calibrated per head, in 8-bit integers.",
    source="HCCS, arXiv 2604.02292",
    options=HccsOptions,
    trace=_trace,
    integer_scores=True,
    calibration="optional: fits where the line ends and what is left there, per site or per head",
    resolve=fit_if_calibrated(reach=lambda options: 2.5, floor=lambda options: 0.0),
    parameters=per_head(reach=_rate, floor=_slope),
    fit=_fit,
)
