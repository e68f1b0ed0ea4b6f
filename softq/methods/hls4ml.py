"""hls4ml's softmax for FPGAs: a table of exponentials and one of reciprocals, each addressed by the highest bits.

    stable:   u = min(max - x, 2^(I-1) - 2^-f),  e = E[highest bits of u],  E = round(2^10 * e^-u)
    latency:  e = E[highest bits of x],  E = min(round(2^10 * e^x), 2^17 - 1)
    output=fixed:  p = (e * R[highest bits of min(sum(e), 2^17 - 1)]) >> (20 - f),  R = round(2^10 / sum)

Source: hls4ml (github.com/fastmachinelearning/hls4ml, ef92ebd, nnet_activation.h, softmax_stable and softmax_latency).
Scores have its type fixed<W, I>, W bits of which I are whole ones with the sign and f = W - I fraction bits; W = 16 and
I = 6 if not told otherwise. Tables hold the value at the lower end of their step. What differs from the source:

* The wrap: max - x can need one bit more than its type has, which there drops it, so that a score 2^(I-1) or more below
  the maximum comes back with a great weight. Here u ends where the type ends.
* Scores beyond fixed<W, I> wrap around there, and what lies between its steps is cut off; here they count as its end
  (latency; stable knows differences only), and are rounded.
* The sum of output=pair is not cut at 128, and the division is exact.

Input: any f32 (-inf is masked, +inf takes all the weight), or 8-bit integers with a step of `step` per unit.
tables=latency takes no maximum: weights saturate from 4.85 on, and a row whose scores all lie below -7.6 has no weight
at all, normalizer 0, as if it were fully masked. It is for scores that are known to be small.
Integers: u of W - 1 bits; address of a bits (2^a entries; 10 in the source, whose exp_table_size and inv_table_size are
options `address` and `inverse`), fewer if the operand has fewer; e and R of
the source's fixed<18, 8>: 10 fraction bits, at most 2^17 - 1, e at most 2^10 for stable.
Normalizer: u32 sum of e, which fits for N < 2^22; i64 for latency.
output=fixed is the published format, of f fraction bits: sums of fixed<18, 8>, which end at 128, so that long flat rows
get too much weight each and rows from 128 maxima on are wrong; their reciprocals in steps of 2^(8 - a), a quarter for
a = 10, which is the greatest error: the probabilities of rows of 16 to 197 sum to 0.9 to 1.1. Longer flat rows lose
what is cut off below 2^-f of each: 0.57 remains at N = 1024 and a deviation of 1. bias=query takes off what is cut off,
not what the reciprocal's steps do: of the relative error of P V 0.017 remains of 0.43 there, at N = 197 and a deviation
of 4, where the sum is 1.05, 0.075 of 0.088. A greater table of reciprocals does that: with inverse=14 it is 0.013, and
0.007 with bias=query too.
Error of e: a step of the table, 2^(I-1-a) for stable, and half a unit of 2^-10; what is below 2^-11 is 0.
For I below 5 the end of u is no zero: what lies beyond weighs e^-2^(I-1).
Calibration: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from softq.errors import UsageError
from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods._outputs import UNCORRECTED, Bias, as_pair, as_probabilities, bias_option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import IntegerDistance, integer_distance, mask_scores

_TABLE_BITS, _TABLE_FRACTION = 18, 10
_MOST = 2 ** (_TABLE_BITS - 1) - 1
"""fixed<18, 8>, rounded half up and saturated."""

_STEP_FRACTION = 20


@dataclass(frozen=True)
class Hls4mlOptions(Options):
    """Which tables, the type of the scores, and what comes out."""

    unnamed: ClassVar = {**UNCORRECTED, "inverse": "auto"}

    bits: int = option(16, "bits of a score", low=6, high=18)
    integer: int = option(6, "bits of a score above the point, the sign's with them", low=2, high=10)
    tables: Literal["stable", "latency"] = option(
        "stable", "addressed by the distance from the maximum, or by the score itself"
    )
    address: int = option(10, "bits of a table's address", low=4, high=12)
    step: float | Auto = option(
        "auto", "8-bit integer scores only: the real value of one unit; auto: that of the scores' type",
        low=2.0**-16, high=16.0,
    )  # fmt: skip
    output: Literal["pair", "fixed"] = option(
        "pair", "weights and their sum, or probabilities by the table of reciprocals as published"
    )
    inverse: float | Auto = option(
        "auto", "with output=fixed, bits of the address of the table of reciprocals; auto: those of the other",
        low=4.0, high=14.0,
    )  # fmt: skip
    bias: Bias = bias_option()


def _fixed(value: float) -> int:
    return min(math.floor(value * 2**_TABLE_FRACTION + 0.5), _MOST)


def exponentials(options: Hls4mlOptions) -> list[int]:
    """Return E: of the distances from 0 up, or of the scores from the least one up."""
    bits, fraction = options.bits, options.bits - options.integer
    if options.tables == "stable":
        dropped = max(bits - 1 - options.address, 0)
        return [_fixed(math.exp(-(i << dropped) / 2**fraction)) for i in range(1 << (bits - 1 - dropped))]
    dropped = max(bits - options.address, 0)
    half = 1 << (bits - dropped - 1)
    return [_fixed(math.exp((i << dropped) / 2**fraction)) for i in range(-half, half)]


def reciprocals(address: int) -> list[int]:
    """Return R: of the sums from 0 up to 128."""
    dropped = _TABLE_BITS - address
    return [_MOST] + [_fixed(2**_TABLE_FRACTION / (i << dropped)) for i in range(1, 1 << (address - 1))]


def _inverse(options: Hls4mlOptions) -> int:
    return int(options.address if options.inverse == "auto" else options.inverse)


def _greatest(options: Hls4mlOptions) -> int:
    """Return the greatest product of an exponential and the reciprocal of a sum that holds it."""
    inverse, dropped = reciprocals(_inverse(options)), _TABLE_BITS - _inverse(options)
    own = exponentials(options)
    # The sum holds the exponential itself, and of distances that of 0 as well.
    least = own[0] if options.tables == "stable" else 0
    return max(e * max(inverse[min(max(e, least), _MOST) >> dropped :]) for e in own)


def _stable(t: Trace, options: Hls4mlOptions, unit: float, step: float) -> tuple[IntegerDistance, Value]:
    bits = options.bits
    d = integer_distance(t, unit, 2 ** (bits - 1) - 1, step)
    at = d.row >> max(bits - 1 - options.address, 0)
    return d, d.weigh(t.lut(t.table(exponentials(options), DType.I32), at))


def _latency(t: Trace, options: Hls4mlOptions, unit: float, step: float) -> tuple[IntegerDistance, Value]:
    bits = options.bits
    half, x = 2 ** (bits - 1), t.scores
    if x.dtype.is_float:
        x, is_nan = mask_scores(t)
        level = t.cast(t.clamp(t.rint(x * t.const(1 / unit, DType.F32)), float(-half), float(half - 1)), DType.I32)
        excluded = x.eq(-math.inf)
    else:
        if x.dtype.bits > 8:
            raise UsageError(f"hls4ml of {x.dtype.value} scores with tables=latency: integer scores are of 8 bits")
        scaled = t.cast(x, DType.I64) * round(step / unit * 2**_STEP_FRACTION)
        whole = (scaled + (1 << (_STEP_FRACTION - 1))) >> _STEP_FRACTION
        level, is_nan = t.cast(t.clamp(whole, -half, half - 1), DType.I32), None
        excluded = None if t.valid is None else ~t.valid
    dropped = max(bits - options.address, 0)
    at = (level + half) >> dropped
    e = t.lut(t.table(exponentials(options), DType.I32), at)
    if x.dtype.is_float:
        infinite = x.eq(math.inf)
        e = t.select(t.any(infinite), t.select(infinite, t.const(1 << _TABLE_FRACTION, DType.I32), 0), e)
    d = IntegerDistance(level, excluded, is_nan)
    return d, d.weigh(e)


def _trace(t: Trace, options: Hls4mlOptions) -> Outputs:
    fraction = options.bits - options.integer
    if fraction < 0:
        raise UsageError(f"hls4ml: bits is {options.bits} and integer {options.integer}; allowed is at most as many")
    if options.inverse != "auto" and (options.output != "fixed" or not float(options.inverse).is_integer()):
        raise UsageError(
            f"hls4ml: inverse is {options.inverse} with output={options.output}; it is a whole number, for output=fixed"
        )
    unit = 2.0**-fraction
    step = unit if options.step == "auto" else options.step
    stable = options.tables == "stable"
    d, e = (_stable if stable else _latency)(t, options, unit, step)
    total = t.row_sum(t.cast(e, DType.U32 if stable else DType.I64))
    if options.output == "pair":
        return as_pair(d, t.cast(e, DType.U32), total, options.bias)
    short = t.cast(t.min(total, _MOST), DType.I32)
    address = _inverse(options)
    inverse = t.lut(t.table(reciprocals(address), DType.I32), short >> (_TABLE_BITS - address))
    p = (t.cast(e, DType.I64) * t.cast(inverse, DType.I64)) >> (2 * _TABLE_FRACTION - fraction)
    greatest = _greatest(options) >> (2 * _TABLE_FRACTION - fraction)
    if options.bias != "none":
        p = t.min(p, greatest)  # as it is, which intervals do not see
    return as_probabilities(d, t.cast(p, DType.U32), total, 1 << fraction, options.bias, greatest)


METHOD = Method(
    name="hls4ml",
    summary="Tables of exponentials and of reciprocals in fixed point, for FPGAs.",
    source="hls4ml, nnet_activation.h",
    options=Hls4mlOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
