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
With exact_sum=1, for distances in bytes, products are divided by what the distances weigh with no code: by the sum over
j of rint(2^(F + W-1) 2^(-e_j / 16)), times 2^-F, F = 15 - W. A mean that all V share is kept by the sum of the weights
that were multiplied; without one the exact sum may be nearer. It cannot overflow for N <= 131,071.
Calibration: optional; `r`, and with growing steps `first`, `shift` and `slope` together with it, can be fitted, per
site or per head, on the squared error of P V; on top of them `weight_bits` and `exact_sum`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from softq.errors import UsageError
from softq.methods import FITTED_SCOPES, Auto, Method, Outputs, Scope, option
from softq.methods import _steps as steps
from softq.methods._fitted import Given, per_head, take
from softq.methods._options import OptionValue
from softq.methods._scale import integer_step
from softq.methods._steps_fit import fit_steps
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, Distance, distance, rounded_multiple

_WEIGHT_BITS = 15
_FITTED_WIDTHS = (8, 7, 6, 5, 4)
"""Bits of a weight that a fit chooses from, the usual ones first: those that a byte holds."""


@dataclass(frozen=True)
class DeferredLogOptions(steps.StepOptions):
    """Width of codes and weights, and how the codes lie."""

    weight_bits: int | Auto | Scope = option(
        _WEIGHT_BITS, "bits of an unsigned weight, or fit 4 to 8 per site or head; auto: fitted per head where there "
        "are calibration data, else 8", low=4, high=24,
    )  # fmt: skip
    rest: Literal["zero", "mean"] = option(
        "zero", "what the last code weighs: nothing, or, of distances in bytes, the mean of what its elements weigh in "
        "the row, but for those that are masked or 15.9 octaves down"
    )  # fmt: skip
    peak: Literal["power", "full"] = option(
        "power", "what the maximum weighs: a power of 2, 2^(weight_bits - 1); full, the greatest number of weight_bits "
        "bits, so that weights of 8 bits use all of a byte"
    )  # fmt: skip
    exact_sum: int | Auto | Scope = option(
        0, "what products are divided by: 0, the sum of the weights; 1, the sum of exact weights of the same distances "
        "in bytes; or fit one of these per site or head; auto: fitted per head where there are calibration data and "
        "distances in bytes, else 0", low=0, high=1,
    )  # fmt: skip
    step: float = integer_step()

    @property
    def widest(self) -> int:
        """Bits of a weight, the most there can be where they are fitted."""
        return _FITTED_WIDTHS[0] if isinstance(self.weight_bits, str) else self.weight_bits

    @property
    def sum_bits(self) -> int:
        """Bits behind the point of an exact weight."""
        return max(0, _WEIGHT_BITS - self.widest)

    def one(self, fitted: Mapping[str, float]) -> int:
        """Return what the maximum weighs."""
        bits = int(fitted.get("weight_bits", self.widest))
        return 2 ** (bits - 1) if self.peak == "power" else 2**bits - 1

    @property
    def varied(self) -> str:
        """The option whose scope what is fitted has: the first that is fitted per head, else per site; else r."""
        return min(self.fitted, key=lambda name: self.fitted[name] != "head", default="r")

    def to_json(self) -> dict[str, OptionValue]:
        """Return the options by name; those that older plans say nothing of where they are not usual."""
        later = {("rest", "zero"), ("peak", "power"), ("exact_sum", 0)}
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
        given |= {"e": self.exact_sum} if self.exact_sum else {}
        parts = [f"{k}{str(v).removesuffix('.0').replace('.', 'p').replace('-', 'm')}" for k, v in given.items()]
        return "_".join(parts + ["growing"] * grow + ["byte"] * self.of_bytes)


def _sums(options: DeferredLogOptions, fitted: Mapping[str, float], code: steps.Code) -> list[int]:
    """Return what each distance in a byte adds to the sum that products are divided by."""
    one, bits = options.one(fitted), options.sum_bits
    if fitted.get("exact_sum", options.exact_sum) == 1:
        return steps.exact_integers(one << bits)
    weights = code.to_integers(one)
    return [weights[at] << bits for at in code.of_bytes()]


def _constants(options: DeferredLogOptions, fitted: Mapping[str, float]) -> dict[str, float | Sequence[float]]:
    """Return what the program takes from the options, or from what was fitted."""
    code = options.code(fitted)
    weights = {"weights": code.to_integers(options.one(fitted))}
    if options.of_bytes:
        sums = {"sums": _sums(options, fitted, code)} if options.exact_sum else {}
        return {"codes": code.of_bytes(), **weights, **sums}
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
    fit = calibrated and options.rest == "zero"
    usual = {"weight_bits": "head" if fit else 8, "exact_sum": "head" if fit and options.of_bytes else 0}
    options = replace(options, **{name: each for name, each in usual.items() if getattr(options, name) == "auto"})
    _check_rest(options)
    return options


def _doubt(options: DeferredLogOptions) -> str:
    doubt = steps.doubt_reach(options)
    growing = "an r of growing steps is given with its first and shift, or with steps=growing"
    return f"deferred-log: {doubt}; {growing}" if doubt else ""


def _check_rest(options: DeferredLogOptions) -> None:
    if options.rest == "mean" and (options.exact_sum or options.weight_bits in FITTED_SCOPES):
        raise UsageError("deferred-log: exact_sum is 1, or one of it and weight_bits is fitted, with rest=mean")
    if options.exact_sum and not options.of_bytes:
        raise UsageError(f"deferred-log: exact_sum is {options.exact_sum}; it is for distance=byte")
    if options.rest == "mean" and not options.of_bytes:
        raise UsageError("deferred-log: rest is mean with a distance as a float; it is for distance=byte")


def _trace(t: Trace, options: DeferredLogOptions) -> Outputs:
    steps.check_traceable(options)
    if "auto" in (options.weight_bits, options.exact_sum):
        raise UsageError("deferred-log: weight_bits or exact_sum is auto; resolve() the options first")
    _check_rest(options)
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    one = options.one({})
    table = Given("weights", 0, one, "weight of each code", DType.U32, options.top + 1)
    d = distance(t)
    if options.of_bytes:
        found_by = Given("codes", 0, options.top, "code of each distance", DType.U8, steps.GREATEST_BYTE + 1)
        per_unit = t.const(steps.PER_OCTAVE * LOG2_E, DType.F32)
        added = Given("sums", 0, one << options.sum_bits, "what a distance adds to the sum", DType.U32, 256)
        wanted = (found_by, table, *(added,) * (options.exact_sum != 0))
        codes_of, weights_of, *sums_of = take(t, options, options.varied, _constants, *wanted)
        units = _rounded(t, _scaled(t, d, per_unit), steps.GREATEST_BYTE)
        codes = t.lut(codes_of, units)
        weights = _with_rest(t, options, units, codes, t.lut(weights_of, codes))
        if sums_of:
            total = t.cast(t.row_sum(t.lut(sums_of[0], units)), DType.F32) * 2.0**-options.sum_bits
            return {**d.pair(weights, total), "codes": codes}
    else:
        codes, weights_of = _find_by_root(t, options, d, table)
        weights = t.lut(weights_of, codes)
    return {**d.pair(weights, t.cast(t.row_sum(weights), DType.F32)), "codes": codes}


def _with_rest(t: Trace, options: DeferredLogOptions, units: Value, codes: Value, weights: Value) -> Value:
    """Return the weights, those of the last code from what its elements in the row weigh, if that is wanted."""
    if options.rest == "zero":
        return weights
    one = options.one({})
    within = codes.eq(options.top) & (units < steps.GREATEST_BYTE)
    none = t.const(0, DType.U32)
    mass = t.row_sum(t.select(within, t.lut(t.table(steps.exact_integers(one), DType.U32), units), none))
    count = t.row_sum(t.select(within, 1, none))
    # A mean is no greater than what is averaged; range analysis knows of quotients only how great their parts may be.
    mean = t.min(t.divide(mass + (count >> 1), t.max(count, 1)), one)
    return t.select(within, mean, weights)


def _find_by_root(t: Trace, options: DeferredLogOptions, d: Distance, table: Given) -> tuple[Value, Value]:
    """Return the codes that are found by computing with floats, and the table of their weights."""
    grow = options.steps == "growing"
    # Of rounded roots nothing is added and nothing taken off.
    root = _ROOT if grow and (options.fitted or options.growth({}).offset or options.growth({}).shift) else ()
    rate, *moved, weights_of = take(t, options, options.varied, _constants, _RATE, *root, table)
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
    if t.scores.dtype.bits != 8 or options.fitted or options.exact_sum or not options.step > 0:
        raise UsageError(
            f"deferred-log of {t.scores.dtype.value} scores with r={options.r} and step={options.step}: integer scores "
            "are of 8 bits, with r a number, nothing else fitted, and a step above 0, as in --set step=0.06"
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
    weights = t.lut(t.table(code.to_integers(options.one({})), DType.U32), codes)
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
    doubt=_doubt,
    parameters=lambda options, fitted: per_head(**{options.varied: _constants})(options, fitted),
    fit=lambda options, samples, error: fit_steps(options, error),
    choices=(("weight_bits", _FITTED_WIDTHS), ("exact_sum", (0, 1))),
    byte_weights=(("weight_bits", 8), ("peak", "full")),
    byte_fits=(("weight_bits", "auto"), ("exact_sum", "auto")),
)
