"""Logarithmic codes of the distance from the maximum, normalized behind the product with V.

    c = min(rint((max - x) * r * log2 e), 2^b - 1)
    w[c] = rint(2^(W-1) * 2^(-c / r)) for c < 2^b - 1, and 0 for the greatest code
    output = sum(w[c_j] V_j) / sum(w[c_j])

With steps=growing the codes lie the closer, the greater the weight, which is worth a third of a bit at 2 and 3 bits:

    c = min(rint(sqrt((max - x) * r * log2 e)), 2^b - 1)
    w[c] = rint(2^(W-1) * mean of 2^-u over the octaves u in [(c - 1/2)^2 / r, (c + 1/2)^2 / r]), w[0] = 2^(W-1)

where the mean takes the elements to become more by a factor of 2^slope an octave: far from the maximum there are more
of them than near it, so the middle of an interval weighs too much.

No exponential, logarithm or division an element: one table of 2^b entries, or shifts for r = 1. A masked element has
the code of exact zero, the row's sum is one by construction, and b does not depend on N.

Source: softq. Its kin: EXAQ (arXiv 2410.03185) quantizes the same quantity without a zero code and with a clip from a
statistic; IndexSoftmax (IntAttention, arXiv 2511.21513) has a fixed range of 6.6 and divides before it rounds.
Input: any f32 (-inf is masked, +inf takes all the weight), or 8-bit integers with a step of `step` a unit.
Integers: code c, b bits. Weight w, unsigned Q0.W scaled by 2^(W-1), at most 2^(W-1). Normalizer: u32 sum of weights; it
cannot overflow for N <= (2^32 - 1) / 2^(W-1), 262,143 with W = 15, and range analysis refuses greater N. With W = 15,
b = 4 and r = 1 each weight is exact, 2^(14 - c), and the sum stays in 31 bits up to N = 131,071.
8-bit integer scores: c = (d * M + 2^(s-1)) >> s with M / 2^s = r * step * log2 e, d in [0, 255], within 31 bits; with
growing steps a table of 256 codes.
Error: w / 2^(W-1) is within a factor of 2^(+-1 / (2r)) of e^-d, plus half a unit of 2^-(W-1), for codes below the
greatest; the range is (2^b - 1.5) / r octaves, beyond which the weight is 0. With growing steps the range is
(2^b - 1.5)^2 / r octaves.
Calibration: optional; `r`, and with growing steps `slope` together with it, can be fitted, one a site or one a head,
on the squared error of the attention output P V. The slope is worth a tenth of the loss of perplexity of SmolLM2-135M
at 2 bits, and nothing that could be told from chance at 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods._contract import FITTED_SCOPES, Error, Fitted, Method, Options, OptionValue, Sample, option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, distance, rounded_multiple

_LEAST_R, _GREATEST_R = 0.125, 64.0
_GREATEST_SLOPE = 2.0
_SLOPE_BITS = 2
"""Up to so many bits a fitted slope lowers SmolLM2's perplexity; with more it could not be told from chance."""

_SLOPES = tuple(k / 5 for k in range(8))

_WEIGHT_BITS = 15


# Codes an octave without calibration data. Equal steps: a range of 16 octaves from 4 bits on; below, finer steps are
# worth more than the far end of the range. Growing steps: the middle of what the sites of two language models were
# fitted to, SmolLM2-135M and models/wikipedia_lm.
_R_EQUAL = {2: 0.5, 3: 0.75}
_R_GROWING = {2: 1.0, 3: 5.0, 4: 24.0}


def _default_r(bits: int, steps: OptionValue) -> float:
    return _R_GROWING[bits] if steps == "growing" else _R_EQUAL.get(bits, 2.0 ** (bits - 4))


@dataclass(frozen=True)
class DeferredLogOptions(Options):
    """Width of codes and weights, and codes an octave."""

    bits: OptionValue = option(4, "bits of a code", low=2, high=8)
    steps: OptionValue = option(
        "auto", "how the codes lie; growing is for 2 to 4 bits; auto: growing at 2 and 3 bits, and at 4 where r is "
        "fitted; equal where r is a number", words=("auto", "equal", "growing"),
    )  # fmt: skip
    r: OptionValue = option(
        "auto", "codes an octave (factor of 2 of the weight; their square with growing steps), or fit one a site or "
        "head; auto: fitted a site where there are calibration data, else with equal steps 1 at 4 bits, doubled by "
        "each further bit, 0.75 at 3 bits and 0.5 at 2, with growing steps 24, 5 and 1",
        low=_LEAST_R, high=_GREATEST_R, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip
    slope: OptionValue = option(
        "auto", "with growing steps: octaves by which the elements of a row become more an octave, or fit one a site "
        "or head; auto: at 2 bits fitted where r is, else 0",
        low=0.0, high=_GREATEST_SLOPE, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip
    weight_bits: OptionValue = option(_WEIGHT_BITS, "bits of an unsigned weight", low=8, high=24)
    step: OptionValue = option(
        0.0, "8-bit integer scores only: the real value of one unit", low=0.0, high=float(2**16)
    )  # fmt: skip

    @property
    def structure(self) -> str:
        """Names `steps`, `slope`, `weight_bits` and `step` where they are not equal, 0, 15, for float scores."""
        given = {"b": self.bits, "r": self.r}
        given |= {"m": self.slope} if self.slope and not isinstance(self.slope, str) else {}
        given |= {"w": self.weight_bits} if self.weight_bits != _WEIGHT_BITS else {}
        given |= {"s": self.step} if self.step else {}
        parts = [f"{k}{str(v).removesuffix('.0').replace('.', 'p').replace('-', 'm')}" for k, v in given.items()]
        return "_".join(parts + ["growing"] * (self.steps == "growing"))


def _resolve(options: Options, calibrated: bool) -> Options:
    assert isinstance(options, DeferredLogOptions)
    bits = int(options.bits)
    if options.steps == "auto":
        # Fitted numbers need a table anyway, and equal steps with r = 1 none.
        fitted = options.r in FITTED_SCOPES or (options.r == "auto" and calibrated)
        growing = isinstance(options.r, str) and bits in (_R_GROWING if fitted else _R_EQUAL)
        options = replace(options, steps="growing" if growing else "equal")
    if options.steps == "growing" and bits not in _R_GROWING:
        raise UsageError(f"deferred-log: steps is growing with {bits} bits; growing steps are for 2 to 4 bits")
    if options.r == "auto":
        options = replace(options, r="site" if calibrated else _default_r(bits, options.steps))
    if options.slope == "auto":
        fitted = options.steps == "growing" and options.r in FITTED_SCOPES and bits <= _SLOPE_BITS
        options = replace(options, slope=options.r if fitted else 0.0)
    if options.slope and options.steps != "growing":
        raise UsageError(f"deferred-log: slope is {options.slope} with {options.steps} steps; it is for growing ones")
    return options


def weight_table(options: DeferredLogOptions, r: float, slope: float = 0.0) -> list[int]:
    """Return the weights of all codes for r codes an octave; `slope` is for growing steps."""
    codes, one = range(2 ** int(options.bits) - 1), 2.0 ** (int(options.weight_bits) - 1)
    # The exponential of a double is right to far more places than the rounding to an integer needs.
    if options.steps != "growing":
        return [round(one * 2.0 ** (-c / r)) for c in codes] + [0]
    means = [_mean((c - 0.5) ** 2 / r, (c + 0.5) ** 2 / r, slope) if c else 1.0 for c in codes]
    return [round(one * mean) for mean in means] + [0]


def _mean(low: float, high: float, slope: float) -> float:
    """Return the mean of 2^-u over [low, high], where the density grows as 2^(slope u)."""
    return 2.0**-low * _integral(slope - 1, high - low) / _integral(slope, high - low)


def _integral(rate: float, width: float) -> float:
    """Return the integral of 2^(rate u) over [0, width]."""
    return math.expm1(rate * math.log(2) * width) / (rate * math.log(2)) if rate else width


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, DeferredLogOptions)
    # A number for r settles `steps` too: equal, unless growing is asked for; and a slope is for growing steps.
    if options.r == "auto" or (options.steps == "auto" and options.r in FITTED_SCOPES):
        raise UsageError("deferred-log: steps or r is auto; resolve() the options first")
    if options.slope == "auto":
        options = replace(options, slope=0.0)
    if options.slope in FITTED_SCOPES and options.r not in FITTED_SCOPES:
        raise UsageError(f"deferred-log: slope is fitted for a {options.slope} and r is not; fit both")
    top = 2 ** int(options.bits) - 1
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options, top)
    if options.r in FITTED_SCOPES:
        scope = options.fitted["r"]
        rate = t.param("rate", scope, DType.F32, _LEAST_R, _GREATEST_R * 2, "r * log2(e): codes a unit of distance")
        table = t.param(
            "weights", scope, DType.U32, 0, 2 ** (int(options.weight_bits) - 1), "weight of each code", top + 1
        )
    else:
        rate = t.const(float(options.r) * LOG2_E, DType.F32)
        table = t.table(weight_table(options, float(options.r), float(options.slope)), DType.U32)
    d = distance(t)
    # A rate of 0 gives every element of a row that holds a NaN the code 0, at the price of one scalar operation.
    level = d.row * t.select(d.is_nan, 0.0, rate)
    # Growing steps: a NaN (a score of +inf, or a row that holds a NaN) stays one, and the clamp makes it the code 0.
    level = t.rint(t.sqrt(level) if options.steps == "growing" else level)
    codes = t.cast(t.clamp(level, 0.0, float(top)), DType.U8)
    weights = t.lut(table, codes)
    total = t.row_sum(weights)
    normalizer = t.select(d.is_nan, math.nan, t.cast(total, DType.F32))
    return {"weights": weights, "normalizer": normalizer, "codes": codes}


def _trace_integer(t: Trace, options: DeferredLogOptions, top: int) -> Mapping[str, Value]:
    if t.scores.dtype.bits != 8 or options.r in FITTED_SCOPES or not float(options.step) > 0:
        raise UsageError(
            f"deferred-log of {t.scores.dtype.value} scores with r={options.r} and step={options.step}: integer scores "
            "are of 8 bits, with r a number and step greater than 0"
        )
    x = t.scores if t.valid is None else t.select(t.valid, t.scores, t.scores.dtype.low)
    d = t.cast(t.row_max(x), DType.I32) - t.cast(x, DType.I32)
    rate = float(options.r) * float(options.step) * LOG2_E
    if options.steps == "growing":
        by_distance = [min(math.floor(math.sqrt(i * rate) + 0.5), top) for i in range(256)]
        codes = t.lut(t.table(by_distance, DType.I32), d)
    else:
        codes = t.min(rounded_multiple(t, d, rate, 255), top)
    if t.valid is not None:
        codes = t.select(t.valid, codes, top)
    weights = t.lut(t.table(weight_table(options, float(options.r), float(options.slope)), DType.U32), codes)
    return {"weights": weights, "normalizer": t.row_sum(weights), "codes": t.cast(codes, DType.U8)}


def _parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    assert isinstance(options, DeferredLogOptions)
    if "r" not in fitted:
        return {}
    given = {"r": fitted["r"], "slope": fitted.get("slope", 0.0 if options.slope == "auto" else options.slope)}
    r, slope = np.broadcast_arrays(*(np.atleast_1d(np.asarray(given[name], np.float64)) for name in ("r", "slope")))
    rate = (r * LOG2_E).astype(np.float32)
    weights = np.array([weight_table(options, *map(float, pair)) for pair in zip(r, slope, strict=True)], np.uint32)
    if options.fitted["r"] == "site":
        return {"rate": rate, "weights": weights[0]}
    return {"rate": rate.reshape(-1, 1, 1), "weights": weights.reshape(len(r), 1, -1)}


def rates_to_try(options: DeferredLogOptions) -> list[float]:
    """Return codes an octave, rising: the last code but one lies 16 to 2 octaves down; beyond these nothing wins."""
    last = 2 ** int(options.bits) - 2
    span = last**2 if options.steps == "growing" else last
    return [float(x) for x in np.geomspace(max(span / 16, _LEAST_R), min(span / 2, _GREATEST_R), 29)]


def _fit(options: Options, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    assert isinstance(options, DeferredLogOptions)
    rates = rates_to_try(options)
    if "slope" not in options.fitted:
        return min(({"r": r} for r in rates), key=error)
    # The error is smooth in both and their valley is wide, so a search along one after the other ends at its bottom.
    at, slope = len(rates) // 2, _SLOPES[2]
    seen: dict[tuple[int, float], float] = {}

    def found(place: int, slope: float) -> float:
        key = place, slope
        if key not in seen:
            seen[key] = error({"r": rates[place], "slope": slope})
        return seen[key]

    places = range(len(rates))
    while True:
        before = at, slope
        at = min(places, key=lambda place: found(place, slope))
        slope = min(_SLOPES, key=lambda one: found(at, one))
        if (at, slope) == before:
            return {"r": rates[at], "slope": slope}
        places = range(max(0, at - 3), min(len(rates), at + 4))


METHOD = Method(
    name="deferred-log",
    summary="Logarithmic codes of the distance from the maximum; the division stands behind the product with V.",
    source="softq; kin: EXAQ (arXiv 2410.03185), IndexSoftmax (arXiv 2511.21513)",
    options=DeferredLogOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
    calibration="optional: fits r, the codes an octave, and slope a site (or with r=head a head) on the error of P V",
    contract=False,
    resolve=_resolve,
    parameters=_parameters,
    fit=_fit,
)
