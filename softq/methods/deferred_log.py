"""Logarithmic codes of the distance from the maximum, normalized behind the product with V.

    c = min(rint((max - x) * r * log2 e), 2^b - 1)
    w[c] = rint(2^(W-1) * 2^(-c / r)) for c < 2^b - 1, and 0 for the greatest code
    output = sum(w[c_j] V_j) / sum(w[c_j])

With steps=growing the codes lie the closer, the greater the weight: of u octaves (powers of 2 of the weight)

    c = min(rint(sqrt(max(u r + o, 0)) - h), 2^b - 1),   u = (max - x) log2 e,   o = (h + 1/2)^2 - f r

so that code c begins at u_c = ((c - 1/2 + h)^2 - o) / r, code 1 at f octaves, and

    w[c] = rint(2^(W-1) * mean of 2^-u over [u_c, u_(c+1)]), w[0] = 2^(W-1)

where the mean takes the elements to become more by a factor of 2^slope per octave: far from the maximum there are more
of them than near it, so the middle of an interval weighs too much. f (`first`) makes the interval of the maximum itself
wide or narrow, h (`shift`) the steps after it more alike. With h = 0 and f = 1 / (4 r) codes are the rounded roots.

With distance=byte, growing steps are found by a table instead of a root, the same on every device and for 8-bit scores:

    e = min(rint((max - x) 16 log2 e), 255),   c = codes[e],   w = weights[c]

where codes has 256 entries: thresholds move halfway between two bytes, w[c] is the mean between these, and code
2^b - 1 begins at 255 or before. A step of 1/16 octave is below what up to 7 bits resolve, so that the error of P V is
that of the root; it is two tables and nothing else, and takes less time.

With rest=mean, for distances in bytes, the elements of the last code weigh what they weigh together, shared out:

    w = rint(S / n) where c = 2^b - 1 and e < 255,   S = sum over these of rint(2^(W-1) * 2^(-e / 16)), n their number

so that a row keeps what lies beyond its last step; 15.9 octaves down (e = 255), masked elements among them, the weight
is 0 still. A code then does not say alone which elements are masked, and what the last one weighs is of the row.

So a code is two tables: thresholds, where each of its values begins, and weights (`softq.methods._steps` makes both).
No exponential, logarithm or division per element: one table of 2^b entries, or shifts for r = 1. A masked element has
the code of exact zero, the row's sum is one by construction, and b does not depend on N.

Source: softq. Its kin: EXAQ (arXiv 2410.03185) quantizes the same quantity without a zero code and with a clip from a
statistic; IndexSoftmax (IntAttention, arXiv 2511.21513) has a fixed range of 6.6 and divides before it rounds.
Input: any f32 (-inf is masked, +inf takes all the weight), or 8-bit integers with a step of `step` per unit.
Integers: code c, b bits. Weight w, unsigned Q0.W scaled by 2^(W-1), at most 2^(W-1). Normalizer: u32 sum of weights; it
cannot overflow for N <= (2^32 - 1) / 2^(W-1), 262,143 with W = 15, and range analysis refuses greater N. With W = 15,
b = 4 and r = 1 each weight is exact, 2^(14 - c), and the sum stays in 31 bits up to N = 131,071.
8-bit integer scores: c = (d * M + 2^(s-1)) >> s with M / 2^s = r * step * log2 e, d in [0, 255], within 31 bits; with
growing steps a table of 256 codes; with distance=byte M / 2^s makes e of d, and the table is that of floats.
Error: w / 2^(W-1) is within a factor of 2^(+-1 / (2r)) of e^-d, plus half a unit of 2^-(W-1), for codes below the
greatest; the range is (2^b - 1.5) / r octaves, beyond which the weight is 0. With growing steps the range is
u_(2^b - 1), and w[c] lies between 2^-u at the ends of its interval.
With peak=full 2^W - 1 takes the place of 2^(W-1): weights of W = 8 bits then use all of a byte, with half the error of
their rounding, and their normalizer cannot overflow for N <= (2^32 - 1) / (2^W - 1).
Calibration: optional; `r`, and with growing steps `first`, `shift` and `slope` together with it, can be fitted, per
site or per head, on the squared error of the attention output P V.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from softq.errors import UsageError
from softq.methods import FITTED_SCOPES, Method, Outputs, option
from softq.methods import _steps as steps
from softq.methods._fitted import Given, per_head, take
from softq.methods._options import OptionValue
from softq.methods._scale import integer_step
from softq.methods._steps_fit import fit_steps
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, Distance, distance, rounded_multiple

_WEIGHT_BITS = 15


@dataclass(frozen=True)
class DeferredLogOptions(steps.StepOptions):
    """Width of codes and weights, and how the codes lie."""

    weight_bits: int = option(_WEIGHT_BITS, "bits of an unsigned weight", low=8, high=24)
    rest: Literal["zero", "mean"] = option(
        "zero", "what the last code weighs: nothing, or, of distances in bytes, the mean of what its elements weigh in "
        "the row, but for those that are masked or 15.9 octaves down"
    )  # fmt: skip
    peak: Literal["power", "full"] = option(
        "power", "what the maximum weighs: a power of 2, 2^(weight_bits - 1); full, the greatest number of weight_bits "
        "bits, so that weights of 8 bits use all of a byte"
    )  # fmt: skip
    step: float = integer_step()

    @property
    def one(self) -> int:
        """What the maximum weighs."""
        return 2 ** (self.weight_bits - 1) if self.peak == "power" else 2**self.weight_bits - 1

    def to_json(self) -> dict[str, OptionValue]:
        """Return the options by name; `rest` and `peak` where they are not usual: older plans say nothing of them."""
        later = {("rest", "zero"), ("peak", "power")}
        return {name: value for name, value in super().to_json().items() if (name, value) not in later}

    @property
    def structure(self) -> str:
        """Names `steps`, `weight_bits` and `step` where they are not equal, 15, for float scores; an unusual shape."""
        grow = self.steps == "growing"
        given: dict[str, object] = {"b": self.bits, "r": self.r}
        if grow:
            usual = steps.shape_beside(self.bits, self.r)
            given |= {steps.SHAPE[name]: v for name, v in self.shape.items() if v not in ("auto", usual[name])}
        given |= {"w": self.weight_bits} if self.weight_bits != _WEIGHT_BITS else {}
        given |= {"s": self.step} if self.step else {}
        given |= {"rest": self.rest} if self.rest != "zero" else {}
        given |= {"peak": self.peak} if self.peak != "power" else {}
        parts = [f"{k}{str(v).removesuffix('.0').replace('.', 'p').replace('-', 'm')}" for k, v in given.items()]
        return "_".join(parts + ["growing"] * grow + ["byte"] * self.of_bytes)


def _constants(options: DeferredLogOptions, fitted: Mapping[str, float]) -> dict[str, float | Sequence[float]]:
    """Return what the program takes from the options, or from what was fitted."""
    code = options.code(fitted)
    weights = {"weights": code.to_integers(options.one)}
    if options.of_bytes:
        return {"codes": code.of_bytes(), **weights}
    found: dict[str, float | Sequence[float]] = {"rate": float(fitted.get("r", options.r)) * LOG2_E}
    if options.steps == "growing":
        growth = options.growth(fitted)
        found |= {"offset": growth.offset, "shift": growth.shift}
    return found | weights


_LEAST_OFFSET, _GREATEST_OFFSET = 0.5**2 - steps.GREATEST_FIRST * steps.GREATEST_R, (0.5 + steps.GREATEST_SHIFT) ** 2
_RATE = Given("rate", steps.LEAST_R, steps.GREATEST_R * 2, "r * log2(e): codes a unit of distance")
_ROOT = (
    Given("offset", _LEAST_OFFSET, _GREATEST_OFFSET, "(1/2 + shift)^2 - first * r"),
    Given("shift", 0, steps.GREATEST_SHIFT, "taken off the root"),
)


def _resolve(options: DeferredLogOptions, calibrated: bool) -> DeferredLogOptions:
    options = steps.resolve_steps(options, calibrated)
    _check_rest(options)
    return options


def _check_rest(options: DeferredLogOptions) -> None:
    if options.rest == "mean" and not options.of_bytes:
        raise UsageError("deferred-log: rest is mean with a distance as a float; it is for distance=byte")


def _trace(t: Trace, options: DeferredLogOptions) -> Outputs:
    steps.check_traceable(options)
    _check_rest(options)
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    table = Given("weights", 0, options.one, "weight of each code", DType.U32, options.top + 1)
    d = distance(t)
    if options.of_bytes:
        found_by = Given("codes", 0, options.top, "code of each distance", DType.U8, steps.GREATEST_BYTE + 1)
        per_unit = t.const(steps.PER_OCTAVE * LOG2_E, DType.F32)
        codes_of, weights_of = take(t, options, "r", _constants, found_by, table)
        units = _rounded(t, _scaled(t, d, per_unit), steps.GREATEST_BYTE)
        codes = t.lut(codes_of, units)
        weights = _with_rest(t, options, units, codes, t.lut(weights_of, codes))
    else:
        codes, weights_of = _find_by_root(t, options, d, table)
        weights = t.lut(weights_of, codes)
    return {**d.pair(weights, t.cast(t.row_sum(weights), DType.F32)), "codes": codes}


def _with_rest(t: Trace, options: DeferredLogOptions, units: Value, codes: Value, weights: Value) -> Value:
    """Return the weights, those of the last code from what its elements in the row weigh, if that is wanted."""
    if options.rest == "zero":
        return weights
    one = options.one
    exact = [round(one * 2.0 ** (-unit / steps.PER_OCTAVE)) for unit in range(steps.GREATEST_BYTE)]
    within = codes.eq(options.top) & (units < steps.GREATEST_BYTE)
    none = t.const(0, DType.U32)
    mass = t.row_sum(t.select(within, t.lut(t.table([*exact, 0], DType.U32), units), none))
    count = t.row_sum(t.select(within, 1, none))
    # A mean is no greater than what is averaged; range analysis knows of quotients only how great their parts may be.
    mean = t.min(t.divide(mass + (count >> 1), t.max(count, 1)), one)
    return t.select(within, mean, weights)


def _find_by_root(t: Trace, options: DeferredLogOptions, d: Distance, table: Given) -> tuple[Value, Value]:
    """Return the codes that are found by computing with floats, and the table of their weights."""
    grow = options.steps == "growing"
    # Of rounded roots nothing is added and nothing taken off.
    root = _ROOT if grow and (options.fitted or options.growth({}).offset or options.growth({}).shift) else ()
    rate, *moved, weights_of = take(t, options, "r", _constants, _RATE, *root, table)
    level = _scaled(t, d, rate)
    if moved:
        # A NaN (a score of +inf, or a row that holds a NaN) becomes 0 here, below the first step.
        level = t.sqrt(t.max(level + moved[0], 0.0)) - moved[1]
    elif grow:
        level = t.sqrt(level)  # a NaN stays one, and the clamp makes it the code 0
    return _rounded(t, level, options.top), weights_of


def _scaled(t: Trace, d: Distance, rate: Value) -> Value:
    # A rate of 0 gives every element of a row that holds a NaN the code 0, at the price of one scalar operation.
    return d.row * t.select(d.is_nan, 0.0, rate)


def _rounded(t: Trace, level: Value, greatest: int) -> Value:
    return t.cast(t.clamp(t.rint(level), 0.0, float(greatest)), DType.U8)


def _trace_integer(t: Trace, options: DeferredLogOptions) -> Outputs:
    if t.scores.dtype.bits != 8 or options.r in FITTED_SCOPES or not options.step > 0:
        raise UsageError(
            f"deferred-log of {t.scores.dtype.value} scores with r={options.r} and step={options.step}: integer scores "
            "are of 8 bits, with r a number and step greater than 0"
        )
    x = t.scores if t.valid is None else t.select(t.valid, t.scores, t.scores.dtype.low)
    d = t.cast(t.row_max(x), DType.I32) - t.cast(x, DType.I32)
    code, octaves = options.code({}), options.step * LOG2_E
    units = None
    if options.of_bytes:
        units = t.min(rounded_multiple(t, d, steps.PER_OCTAVE * octaves, 255), steps.GREATEST_BYTE)
        units = units if t.valid is None else t.select(t.valid, units, steps.GREATEST_BYTE)
        codes = t.cast(t.lut(t.table(code.of_bytes(), DType.U8), units), DType.I32)
    elif options.steps == "growing":
        codes = t.lut(t.table([code.find(i * octaves) for i in range(256)], DType.I32), d)
    else:
        codes = t.min(rounded_multiple(t, d, float(options.r) * octaves, 255), options.top)
    if t.valid is not None:
        codes = t.select(t.valid, codes, options.top)
    weights = t.lut(t.table(code.to_integers(options.one), DType.U32), codes)
    if units is not None:
        weights = _with_rest(t, options, units, codes, weights)
    return {"weights": weights, "normalizer": t.row_sum(weights), "codes": t.cast(codes, DType.U8)}


METHOD = Method(
    name="deferred-log",
    summary="Logarithmic codes of the distance from the maximum; the division stands behind the product with V.",
    source="softq; kin: EXAQ (arXiv 2410.03185), IndexSoftmax (arXiv 2511.21513)",
    options=DeferredLogOptions,
    trace=_trace,
    drop_in=True,
    integer_scores=True,
    calibration="optional: fits r, the codes per octave, and how steps grow, per site or head, on the error of P V",
    resolve=_resolve,
    parameters=per_head(r=_constants),
    fit=lambda options, samples, error: fit_steps(options, error),
    byte_weights=(("weight_bits", 8), ("peak", "full")),
)
