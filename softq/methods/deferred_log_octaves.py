"""The codes of deferred-log against a running reference of whole octaves: one pass, and a plain sum.

    u = rint(16 x log2 e)                                    the place of a score, in units of 1/16 octave
    v = u - u_1 - p,  o = ceil(v / 16)                       against the row's first score, which stands p units down
    O = max(O, o), from 0                                    the octaves by which the reference has risen
    e = min(16 O - v, 255),  c = codes[e]                    the code of the element
    T = T + w[c] 2^O,        S = T >> O with the last O      the sum in fixed point, whose unit the first score sets

A sum of w[c_j] V_j is taken as T is; output = that sum / T. The row of weights that this program gives is what each
element has left at the end: w[c_j] >> (O - O_j), with the last O. A core that multiplies with V in the same pass takes
codes and octaves (O_j) as they come, and keeps no row.

Where the reference may rise by more than 31 octaves, T is kept in windows of 16, of which h = O >> 4 is the number:

    h rises by 1: B = A >> 16, A = 0;  by more: B = A = 0;  then A = A + w[c] 2^(O mod 16),  S = (A + B) >> (O mod 16)

B are the elements of the window before; what lies two windows down is 17 octaves below the reference: it weighs 0.

Loops go from element to element for u_1, which is loaded once; O, a comparison and a choice; and the sum: an addition,
behind a choice where there are windows. All else, the tables and the shift by O among it, lies between them or behind
them, where a core may take any number of clocks: so each loop closes in one.

Steps: with r=auto the codes grow from u_c = ((c - 1/2 + h)^2 - (h + 1/2)^2) / r + f octaves below the reference, as
deferred-log's do from the maximum, and w[c] is the mean of 2^-u over [u_c, u_(c+1)], in units of that of the code 0,
2^14. r, f and h (`_NUMBERS`) are others than deferred-log's, since the maximum lies anywhere in the first octave below
the reference. With r a number code c begins at c / r octaves and weighs rint(2^14 * 2^(-c / r)): with r=1 w is a power
of 2, and so is each weight at the end. The last code, and what lies 15.9 octaves down, weighs 0.
p is the middle of the code 0 (below an octave), so that with r=1 the codes are those that deferred-log has with
steps=equal where the maximum comes first.

Source: softq's deferred-log in the recurrence of the online softmax (Milakov and Gimelshein, arXiv 1805.02867), with
the octaves of SOLE's and ITA's running maxima (arXiv 2510.17189, 2211.10080): these shift by what they code with, and
shift the sum where the maximum rises; here what is added is shifted, and a sum of integers has no order.
The codes depend on the order of the elements: one is coded against the reference of its time, and the first one says
where octaves begin. Form in several passes: deferred-log.
Input: 8-bit integers with a step of `step` per unit, u by a table of 256 entries; or any f32, for which u is rounded
from the distance from the maximum, found in a pass of its own, and at most 31 octaves (-inf is masked, +inf takes all
the weight).
Integers: e and c, 8 bits. w, unsigned, at most 2^14. O and v, i32: twice 255 step log2 e octaves and 16 more. T, i64,
at most N 2^45, so that it cannot overflow for N <= 262,143: S is below 2^32 then; a core needs 15 + log2(N) bits and
as many more as O may be. A, 30 + log2(N) bits; B, 14 + log2(N).
Error: e is within half a unit of 2^-4 octave for each of two places; w is that of a code. T is exact, and S is T 2^-O
cut off, but for what windows leave out. The greatest score is within an octave of the reference, where w is 2^12 at
least. S is as much as the weights at the end, or more by less than one unit for each of them.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from softq.errors import UsageError
from softq.methods import Auto, Method, Options, OptionValue, Outputs, option
from softq.methods._scale import integer_step
from softq.methods._steps import GREATEST_BYTE, PER_OCTAVE, Code, Growth
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, integer_distance

_ONE = 2**14
_FRACTION = PER_OCTAVE.bit_length() - 1
_GREATEST_SHIFT = 31
_WINDOW = 16
_GREATEST_WINDOW = 2**47 - 1
"""Of A: a weight of 2^14 is shifted by up to 15, and a row has fewer than 2^18 elements."""

_GREATEST_SUM = (2**18 - 1) * _ONE

_NUMBERS: Mapping[int, Mapping[str, float]] = {
    2: {"r": 1.39, "first": 1.0, "shift": 0.23},
    3: {"r": 6.85, "first": 0.44, "shift": 1.19},
    4: {"r": 22.1, "first": 0.293, "shift": 0.437},
    5: {"r": 86.7, "first": 0.178, "shift": 0.518},
    6: {"r": 348.0, "first": 0.101, "shift": 0.888},
    7: {"r": 1190.0, "first": 0.0586, "shift": 2.08},
}
"""Growing steps by bits, as `python -m benchmarks.octaves --search` finds them on calibration data of four models."""

_UNNAMED: Mapping[str, OptionValue] = {"r": "auto", "step": 0.0}


@dataclass(frozen=True)
class DeferredLogOctavesOptions(Options):
    """Width of the codes, how they lie, and the scale of integer scores."""

    unnamed = _UNNAMED

    bits: int = option(4, "bits of a code", low=2, high=8)
    r: float | Auto = option(
        "auto", "codes per octave (factor of 2 of the weight), all alike; auto: more of them near the maximum, as many "
        "as suit the width, and with 8 bits 16", low=0.125, high=PER_OCTAVE,
    )  # fmt: skip
    step: float = integer_step()

    def code(self) -> Code:
        """Return where the codes begin below the reference, and what they weigh."""
        top = 2**self.bits - 1
        if self.r == "auto" and self.bits in _NUMBERS:
            return growing_steps(top, Growth(slope=0.0, **_NUMBERS[self.bits]))
        r = float(PER_OCTAVE if self.r == "auto" else self.r)
        return Code(tuple(c / r for c in range(1, top + 1)), (*(2.0 ** (-c / r) for c in range(top)), 0.0))


def growing_steps(top: int, growth: Growth) -> Code:
    """Return growing steps from the reference, on which no element need lie: the code 0 weighs a mean, too."""
    code = growth.steps(top, of_bytes=True)
    first = code.thresholds[0]
    mean = (1 - 2.0**-first) / (first * math.log(2))
    return Code(code.thresholds, (1.0, *(weight / mean for weight in code.weights[1:])))


@dataclass(frozen=True)
class _Places:
    """Where the scores of a row lie, in units of 1/16 octave.

    Attributes:
        row: The place, row of i32 in [1, span + 1], and 0 where an element takes no part.
        span: The greatest difference of two places.
        is_nan: Whether an element that takes part is NaN, scalar of bool; None for integer scores.
        some_excluded: Whether there may be elements that take no part.
    """

    row: Value
    span: int
    is_nan: Value | None
    some_excluded: bool


def _places(t: Trace, step: float) -> _Places:
    if t.scores.dtype.is_float:
        span = _GREATEST_SHIFT * PER_OCTAVE - 1
        d = integer_distance(t, 1 / (LOG2_E * PER_OCTAVE), span)
        assert d.excluded is not None
        return _Places(t.select(d.excluded, 0, (span + 1) - d.row), span, d.is_nan, True)
    if t.scores.dtype.bits != 8 or not step > 0:
        raise UsageError(
            f"{t.name} of {t.scores.dtype.value} scores with step={step:g}: integer scores are of 8 bits, with a step "
            "above 0"
        )
    entries = [1 + round(x * step * LOG2_E * PER_OCTAVE) for x in range(256)]
    row = t.lut(t.table(entries, DType.I32), t.cast(t.scores, DType.I32) - t.scores.dtype.low)
    return _Places(row if t.valid is None else t.select(t.valid, row, 0), entries[-1] - 1, None, t.valid is not None)


@dataclass(frozen=True)
class _Reference:
    """The reference of a row, in octaves above that of its first element.

    Attributes:
        row: The reference of each element's time, row of i32 in [0, greatest].
        before: The reference before the element.
        last: The last one, scalar.
        greatest: What it may be at most.
    """

    row: Value
    before: Value
    last: Value
    greatest: int


def _code(t: Trace, places: _Places, start: int) -> tuple[Value, _Reference]:
    """Return how far each element lies below the reference of its time, in units that a byte holds, and that reference.

    Args:
        t: The trace.
        places: Where the scores lie.
        start: How far the first element lies below the reference.
    """

    def take_first(first: Value, place: Value) -> tuple[list[Value], list[Value]]:
        after = t.select(first > 0, first, place)
        return [after], [after]

    _, (first,) = t.scan([t.const(0, DType.I32)], [places.row], take_first, [(0, places.span + 1)])
    place = places.row - first - start
    if places.some_excluded:
        place = t.select(places.row > 0, place, -GREATEST_BYTE)
    greatest = max(-(-(places.span + 1 - start) // PER_OCTAVE), 0)

    def rise(reference: Value, here: Value) -> tuple[list[Value], list[Value]]:
        after = t.max(reference, here)
        return [after], [after, reference]

    octave = (place + (PER_OCTAVE - 1)) >> _FRACTION
    (last,), (row, before) = t.scan([t.const(0, DType.I32)], [octave], rise, [(0, greatest)])
    below = t.clamp((row << _FRACTION) - place, 0, GREATEST_BYTE)
    return below, _Reference(row, before, last, greatest)


def _sum(t: Trace, weights: Value, reference: _Reference) -> Value:
    """Return the sum of the weights of a row in units of the last reference, u32."""
    wide = t.cast(weights, DType.I64)
    if reference.greatest <= _GREATEST_SHIFT:
        total = t.row_sum(wide << t.cast(reference.row, DType.I64))
        return t.cast(total >> t.cast(reference.last, DType.I64), DType.U32)

    def window(octaves: Value) -> Value:
        return octaves >> (_WINDOW.bit_length() - 1)

    def within(octaves: Value) -> Value:
        return t.cast(t.clamp(octaves - window(octaves) * _WINDOW, 0, _WINDOW - 1), DType.I64)

    def add(here: Value, below: Value, rise: Value, weight: Value) -> tuple[list[Value], list[Value]]:
        stays = rise.eq(0)
        moved = t.select(stays, below, t.select(rise.eq(1), here >> _WINDOW, 0))
        return [t.select(stays, here, 0) + weight, moved], []

    zero, rise = t.const(0, DType.I64), window(reference.row) - window(reference.before)
    kept = [(0, _GREATEST_WINDOW), (0, _GREATEST_WINDOW >> _WINDOW)]
    (here, below), _ = t.scan([zero, zero], [rise, wide << within(reference.row)], add, kept)
    total = (here + below) >> within(reference.last)
    # A is as long as a row may be: where it fits, S does.
    return t.cast(t.assume(total, 0, _GREATEST_SUM, "no weight is above 2^14 at the last reference"), DType.U32)


def _trace(t: Trace, options: DeferredLogOctavesOptions) -> Outputs:
    code = options.code()
    places = _places(t, options.step)
    below, reference = _code(t, places, math.ceil(code.thresholds[0] * PER_OCTAVE) // 2 % PER_OCTAVE)
    codes = t.lut(t.table([*code.of_bytes()[:-1], 2**options.bits - 1], DType.U8), below)
    weights = t.lut(t.table(code.to_integers(_ONE), DType.U32), codes)
    total = _sum(t, weights, reference)
    normalizer = total if places.is_nan is None else t.select(places.is_nan, math.nan, t.cast(total, DType.F32))
    left = t.clamp(reference.last - reference.row, 0, _GREATEST_SHIFT)
    octaves = t.cast(reference.row, DType.U8) if reference.greatest <= DType.U8.high else reference.row
    return {
        "weights": weights >> t.cast(left, DType.U32), "normalizer": normalizer, "codes": codes, "octaves": octaves,
    }  # fmt: skip


METHOD = Method(
    name="deferred-log-octaves",
    summary="deferred-log's codes against a running reference of whole octaves: one pass that adds.",
    source="softq, in the recurrence of the online softmax (Milakov and Gimelshein, arXiv 1805.02867)",
    options=DeferredLogOctavesOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
