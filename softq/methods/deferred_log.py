"""Logarithmic codes of the distance from the maximum, normalized behind the product with V.

    c = min(rint((max - x) * r * log2 e), 2^b - 1)
    w[c] = rint(2^(W-1) * 2^(-c / r)) for c < 2^b - 1, and 0 for the greatest code
    output = sum(w[c_j] V_j) / sum(w[c_j])

With steps=growing the codes lie the closer, the greater the weight: of u octaves (powers of 2 of the weight)

    c = min(rint(sqrt(max(u r + o, 0)) - h), 2^b - 1),   u = (max - x) log2 e,   o = (h + 1/2)^2 - f r

so that code c begins at u_c = ((c - 1/2 + h)^2 - o) / r, code 1 at f octaves, and

    w[c] = rint(2^(W-1) * mean of 2^-u over [u_c, u_(c+1)]), w[0] = 2^(W-1)

where the mean takes the elements to become more by a factor of 2^slope an octave: far from the maximum there are more
of them than near it, so the middle of an interval weighs too much. f (`first`) makes the interval of the maximum itself
wide or narrow, h (`shift`) the steps after it more alike. With h = 0 and f = 1 / (4 r) codes are the rounded roots.

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
u_(2^b - 1), and w[c] lies between 2^-u at the ends of its interval.
Calibration: optional; `r`, and with growing steps `first`, `shift` and `slope` together with it, can be fitted, one a
site or one a head, on the squared error of the attention output P V.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods import _growing as growing
from softq.methods._contract import FITTED_SCOPES, Error, Fitted, Method, Options, OptionValue, Sample, option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, distance, rounded_multiple

_LEAST_R, _GREATEST_R = 0.125, 64.0
_LEAST_FIRST, _GREATEST_FIRST = 0.25 / _GREATEST_R, 4.0
_GREATEST_SHIFT = 4.0
_GREATEST_SLOPE = 2.0

_WEIGHT_BITS = 15

# Codes an octave of equal steps without calibration data: a range of 16 octaves from 4 bits on; below, finer steps are
# worth more than the far end of the range.
_R_EQUAL = {2: 0.5, 3: 0.75}


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
        "each further bit, 0.75 at 3 bits and 0.5 at 2, with growing steps 23, 6.5 and 1.3",
        low=_LEAST_R, high=_GREATEST_R, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip
    first: OptionValue = option(
        "auto", "with growing steps: octaves below the maximum at which code 1 begins, or fit it one a site or head; "
        "auto: fitted where r is; 1 / (4 r) where r is a number; else 0.8, 0.4 and 0.17 at 2, 3 and 4 bits",
        low=_LEAST_FIRST, high=_GREATEST_FIRST, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip
    shift: OptionValue = option(
        "auto", "with growing steps: what is taken off the root, so that the first steps differ less; or fit it one a "
        "site or head; auto: fitted where r is; 0 where r is a number; else 0.2, 0.8 and 0.7",
        low=0.0, high=_GREATEST_SHIFT, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip
    slope: OptionValue = option(
        "auto", "with growing steps: octaves by which the elements of a row become more an octave, or fit one a site "
        "or head; auto: fitted where r is at 2 bits; 0.2 at 2 bits without calibration data; else 0",
        low=0.0, high=_GREATEST_SLOPE, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip
    weight_bits: OptionValue = option(_WEIGHT_BITS, "bits of an unsigned weight", low=8, high=24)
    step: OptionValue = option(
        0.0, "8-bit integer scores only: the real value of one unit", low=0.0, high=float(2**16)
    )  # fmt: skip

    @property
    def structure(self) -> str:
        """Names `steps`, `weight_bits` and `step` where they are not equal, 15, for float scores; an unusual shape."""
        given = {"b": self.bits, "r": self.r}
        if self.steps == "growing":
            usual = growing.beside(int(self.bits), self.r)
            curve = {name: getattr(self, name) for name in growing.SHAPE}
            given |= {growing.SHAPE[name]: value for name, value in curve.items() if value not in ("auto", usual[name])}
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
        grow = isinstance(options.r, str) and bits in (growing.USUAL if fitted else _R_EQUAL)
        options = replace(options, steps="growing" if grow else "equal")
    _check_steps(options)
    shape = {name: getattr(options, name) for name in growing.SHAPE}
    if options.steps != "growing":
        r = options.r if options.r != "auto" else "site" if calibrated else _R_EQUAL.get(bits, 2.0 ** (bits - 4))
        return replace(options, r=r)
    if options.r == "auto" and not calibrated:
        given = asdict(growing.USUAL[bits])
    else:
        r = "site" if options.r == "auto" else options.r
        given = {"r": r, **growing.beside(bits, r)}
    return replace(options, r=given["r"], **{name: given[name] for name, value in shape.items() if value == "auto"})


def _check_steps(options: DeferredLogOptions) -> None:
    """Refuse options that do not go with their steps, which are equal where they are auto."""
    if options.steps == "growing" and options.bits not in growing.USUAL:
        raise UsageError(f"deferred-log: steps is growing with {options.bits} bits; growing steps are for 2 to 4 bits")
    for name in growing.SHAPE if options.steps != "growing" else ():
        value = getattr(options, name)
        if value not in ("auto", 0.0):
            raise UsageError(f"deferred-log: {name} is {value} with equal steps; it is for growing ones")


def weight_table(options: DeferredLogOptions, r: float) -> list[int]:
    """Return the weights of all codes of equal steps, r an octave."""
    # The exponential of a double is right to far more places than the rounding to an integer needs.
    return _integers(options, [2.0 ** (-c / r) for c in range(2 ** int(options.bits) - 1)])


def _growing_table(options: DeferredLogOptions, curve: growing.Curve) -> list[int]:
    return _integers(options, curve.weights(2 ** int(options.bits) - 1))


def _integers(options: DeferredLogOptions, weights: Sequence[float]) -> list[int]:
    return [round(2.0 ** (int(options.weight_bits) - 1) * weight) for weight in weights] + [0]


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, DeferredLogOptions)
    # A number for r settles `steps` too: equal, unless growing is asked for; and the shape is for growing ones.
    if options.r == "auto" or (options.steps == "auto" and options.r in FITTED_SCOPES):
        raise UsageError("deferred-log: steps or r is auto; resolve() the options first")
    _check_steps(options)
    grow, fitted = options.steps == "growing", options.r in FITTED_SCOPES
    for name in growing.SHAPE:
        value = getattr(options, name)
        if value == "auto" and grow and fitted:
            raise UsageError(f"deferred-log: {name} is auto; resolve() the options first")
        if value in FITTED_SCOPES and not fitted:
            raise UsageError(f"deferred-log: {name} is fitted for a {value} and r is not; fit both")
    top = 2 ** int(options.bits) - 1
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options, top)
    offset = shift = None
    if fitted:
        scope = options.fitted["r"]
        rate = t.param("rate", scope, DType.F32, _LEAST_R, _GREATEST_R * 2, "r * log2(e): codes a unit of distance")
        if grow:
            least, most = (0.5**2 - _GREATEST_FIRST * _GREATEST_R), (0.5 + _GREATEST_SHIFT) ** 2
            offset = t.param("offset", scope, DType.F32, least, most, "(1/2 + shift)^2 - first * r")
            shift = t.param("shift", scope, DType.F32, 0, _GREATEST_SHIFT, "taken off the root")
        table = t.param(
            "weights", scope, DType.U32, 0, 2 ** (int(options.weight_bits) - 1), "weight of each code", top + 1
        )
    elif grow:
        curve = growing.curve(options.to_json(), {})
        rate = t.const(curve.r * LOG2_E, DType.F32)
        if (curve.offset, curve.shift) != (0.0, 0.0):
            offset, shift = t.const(curve.offset, DType.F32), t.const(curve.shift, DType.F32)
        table = t.table(_growing_table(options, curve), DType.U32)
    else:
        rate = t.const(float(options.r) * LOG2_E, DType.F32)
        table = t.table(weight_table(options, float(options.r)), DType.U32)
    d = distance(t)
    # A rate of 0 gives every element of a row that holds a NaN the code 0, at the price of one scalar operation.
    level = d.row * t.select(d.is_nan, 0.0, rate)
    if offset is not None and shift is not None:
        # A NaN (a score of +inf, or a row that holds a NaN) becomes 0 here, below the first step.
        level = t.sqrt(t.max(level + offset, 0.0)) - shift
    elif grow:
        level = t.sqrt(level)  # a NaN stays one, and the clamp makes it the code 0
    codes = t.cast(t.clamp(t.rint(level), 0.0, float(top)), DType.U8)
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
    octaves = float(options.step) * LOG2_E
    if options.steps == "growing":
        curve = growing.curve(options.to_json(), {})
        codes = t.lut(t.table([min(curve.code(i * octaves), top) for i in range(256)], DType.I32), d)
        table = _growing_table(options, curve)
    else:
        codes = t.min(rounded_multiple(t, d, float(options.r) * octaves, 255), top)
        table = weight_table(options, float(options.r))
    if t.valid is not None:
        codes = t.select(t.valid, codes, top)
    weights = t.lut(t.table(table, DType.U32), codes)
    return {"weights": weights, "normalizer": t.row_sum(weights), "codes": t.cast(codes, DType.U8)}


def _parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    assert isinstance(options, DeferredLogOptions)
    if "r" not in fitted:
        return {}
    names = [name for name in ("r", *growing.SHAPE) if name in fitted]
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(fitted[name], np.float64)) for name in names))
    each = [dict(zip(names, map(float, row), strict=True)) for row in zip(*columns, strict=True)]
    values: dict[str, NDArray[np.generic]] = {"rate": np.array([one["r"] * LOG2_E for one in each], np.float32)}
    if options.steps == "growing":
        curves = [growing.curve(options.to_json(), one) for one in each]
        values["offset"] = np.array([curve.offset for curve in curves], np.float32)
        values["shift"] = np.array([curve.shift for curve in curves], np.float32)
        tables = [_growing_table(options, curve) for curve in curves]
    else:
        tables = [weight_table(options, one["r"]) for one in each]
    weights = np.array(tables, np.uint32)
    if options.fitted["r"] == "site":
        return {**values, "weights": weights[0]}
    return {name: value.reshape(-1, 1, 1) for name, value in values.items()} | {
        "weights": weights.reshape(len(each), 1, -1)
    }


def rates_to_try(options: DeferredLogOptions) -> list[float]:
    """Return codes an octave, rising: the last code but one lies 16 to 2 octaves down; beyond these nothing wins."""
    last = 2 ** int(options.bits) - 2
    span = last**2 if options.steps == "growing" else last
    return [float(x) for x in np.geomspace(max(span / 16, _LEAST_R), min(span / 2, _GREATEST_R), 29)]


def _fit(options: Options, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    assert isinstance(options, DeferredLogOptions)
    rates = rates_to_try(options)
    if options.steps != "growing":
        return min(({"r": r} for r in rates), key=error)
    return growing.fit(int(options.bits), options.to_json(), rates[::3], options.specs(), error)


METHOD = Method(
    name="deferred-log",
    summary="Logarithmic codes of the distance from the maximum; the division stands behind the product with V.",
    source="softq; kin: EXAQ (arXiv 2410.03185), IndexSoftmax (arXiv 2511.21513)",
    options=DeferredLogOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
    calibration="optional: fits r, the codes an octave, and how steps grow, a site or a head, on the error of P V",
    contract=False,
    resolve=_resolve,
    parameters=_parameters,
    fit=_fit,
)
