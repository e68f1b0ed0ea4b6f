"""Edge-MoE's softmax: the online recurrence in fixed point of 32 bits, 10 of them whole ones.

    for each score x:  x > m: S = S * e^(m - x) + 1, m = x;  else S = S + e^(x - m)
    w = e^(x - m), p = w * (1 / S) with the last m and S

Source: Edge-MoE, ICCAD 2023, arXiv 2305.18691, section on the single-pass softmax, and what its code
(github.com/sharc-lab/Edge-MoE, 984b23b) computes, described and not copied: it has no licence. The statistics of a row
are taken as its scores leave the product of queries and keys; the exponential is taken again where the weights are
needed, so that none is kept. What differs:

* There a score beyond +-512 wraps around; here it counts as the end of that range. m starts at -512 in both.
* There e^x and 1 / S are a vendor's routines, which are not published. Here e^-d is the product of three tables for 9,
  9 and 8 bits of d, rounded to 2^-22, and 1 / S is cut off at 2^-22.
* There S has the format of the scores and overflows from 512 equal ones on; here it has 53 bits.

maximum=running is the published form, one pass over a stream. maximum=first finds m in a pass of its own: nothing is
rescaled, so that S is the sum of w, and the order of the elements does not matter. Take it where scores are kept: for
the other one onnxruntime loops over the elements.
Input: any f32, rounded to 2^-22 (-inf is masked, +inf takes all the weight), or 8-bit integers with a step of `step` a
unit, which is rounded to 2^-22.
Integers: x and m signed, 22 fraction bits, i64 for what lies beyond all scores; d = |x - m| below 16 (from there on
e^-d is 0); tables of 2^30 * e^-d, unsigned, their products below 2^61; w at most 2^22.
Normalizer: S, i64 with 22 fraction bits. No row reaches 2^53: that takes 2^31 elements. S e is taken in two halves of S
and cut off as one product: at most 2^56 and 2^43.
output=pair gives w and S; output=fixed the published p, of 22 fraction bits, which is w * r with r = 2^44 / S cut off.
Error: w within 0.51 units of 2^-22, not counting the rounding of the scores. S from the running form: half a unit for
each element, and for each rise of the maximum two units and half a unit times S, of its factor.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from softq.errors import UsageError
from softq.methods import Method, Options, Outputs, option
from softq.methods._scale import integer_step
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import mask_scores

_FRACTION = 22
_ONE = 1 << _FRACTION
_LEAST, _GREATEST = -(2.0**31), 2.0**31 - 128
"""-512, and the greatest f32 number below 512, in units of 2^-22."""

_OUTSIDE = 2**34
"""Where scores of +inf stand, and masked ones below zero: farther from all others than any difference that counts."""

_FARTHEST = (16 << _FRACTION) - 1
"""2^22 * e^-16 is 0.47: rounded, 0."""

_TABLE_FRACTION = 30
_PARTS = ((17, 9), (8, 9), (0, 8))
"""The three parts of a distance: their lowest bit, and how many bits they have."""

_GREATEST_SUM = 2**53
_HALF = 20


@dataclass(frozen=True)
class EdgeMoeOptions(Options):
    """When the maximum is known, the scale of integer scores, and what comes out."""

    maximum: Literal["running", "first"] = option(
        "running", "running, in the pass of the sum, or first, in a pass of its own"
    )
    output: Literal["pair", "fixed"] = option(
        "pair", "weights and their sum, or probabilities of 22 fraction bits as published"
    )
    step: float = integer_step(2.0)


def tables() -> list[list[int]]:
    """Return 2^30 * e^-d for each part of a distance."""
    return [
        [round(2**_TABLE_FRACTION * math.exp(-(i << low) / _ONE)) for i in range(1 << bits)] for low, bits in _PARTS
    ]


def _exponential(t: Trace, difference: Value) -> Value:
    """Return 2^22 * e^-d, i64, for a difference d >= 0 in units of 2^-22; negative ones count as 0."""
    d = t.cast(t.clamp(difference, 0, _FARTHEST), DType.I32)
    parts: list[Value] = []
    above = t.const(0, DType.I32)
    for (low, bits), table in zip(_PARTS, tables(), strict=True):
        here = d >> low
        at = here if low == _PARTS[0][0] else t.clamp(here - (above << bits), 0, (1 << bits) - 1)
        parts.append(t.cast(t.lut(t.table(table, DType.I32), at), DType.I64))
        above = here
    first, second, third = parts
    product = (first * second + (1 << (_TABLE_FRACTION - 1))) >> _TABLE_FRACTION
    right = 2 * _TABLE_FRACTION - _FRACTION
    return t.min((product * third + (1 << (right - 1))) >> right, _ONE)


def _scores(t: Trace, step: float) -> tuple[Value, Value | None]:
    """Return the scores in units of 2^-22, i64, and whether one is NaN, None for integer scores."""
    if t.scores.dtype.is_float:
        x, is_nan = mask_scores(t)
        whole = t.cast(t.clamp(t.rint(x * float(_ONE)), _LEAST, _GREATEST), DType.I64)
        return t.select(x.eq(math.inf), _OUTSIDE, t.select(x.eq(-math.inf), -_OUTSIDE, whole)), is_nan
    multiplier = round(step * _ONE)
    if t.scores.dtype.bits > 8 or multiplier < 1:
        raise UsageError(
            f"edge-moe of {t.scores.dtype.value} scores with step={step:g}: integer scores are of 8 bits, with a step "
            "of at least 2^-22"
        )
    whole = t.cast(t.scores, DType.I64) * multiplier
    return whole if t.valid is None else t.select(t.valid, whole, -_OUTSIDE), None


def _rescale(total: Value, e: Value) -> Value:
    """Return floor(total * e / 2^22)."""
    high = total >> _HALF
    low = total - (high << _HALF)
    return (high * e + ((low * e) >> _HALF)) >> (_FRACTION - _HALF)


def _trace(t: Trace, options: EdgeMoeOptions) -> Outputs:
    x, is_nan = _scores(t, options.step)
    start = t.const(int(_LEAST), DType.I64)
    if options.maximum == "first":
        greatest = t.max(t.row_max(x), start)
        weights = _exponential(t, greatest - x)
        total = t.row_sum(weights)
    else:

        def step(total: Value, greatest: Value, score: Value) -> tuple[list[Value], list[Value]]:
            rises = score > greatest
            e = _exponential(t, t.select(rises, score - greatest, greatest - score))
            after = t.select(rises, _rescale(total, e) + _ONE, total + e)
            return [t.min(after, _GREATEST_SUM), t.select(rises, score, greatest)], []

        kept = [(0, _GREATEST_SUM), (int(_LEAST), _OUTSIDE)]
        (total, greatest), _ = t.scan([t.const(0, DType.I64), start], [x], step, kept)
        weights = _exponential(t, greatest - x)
    one = total
    if options.output == "fixed":
        reciprocal = t.divide(t.const(_ONE * _ONE, DType.I64), t.max(total, _ONE))
        weights = (weights * reciprocal) >> _FRACTION
        one = t.select(total > 0, t.const(_ONE, DType.I64), 0)
    normalizer = one if is_nan is None else t.select(is_nan, math.nan, t.cast(one, DType.F32))
    return {"weights": t.cast(weights, DType.U32), "normalizer": normalizer}


METHOD = Method(
    name="edge-moe",
    summary="The online softmax in fixed point of 32 bits; for streams.",
    source="Edge-MoE, ICCAD 2023, arXiv 2305.18691",
    options=EdgeMoeOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
