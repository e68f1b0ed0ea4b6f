"""The exponential as the limit that defines it, by squarings in fixed point: (1 - d / 2^t)^(2^t), and 0 from d = 14 on.

    b = 1 - d / 2^t,  w = b^2^t by t squarings,  p = w / sum(w),  d = max - x

Source: PUMA, arXiv 2307.12533, section on softmax; SPU (github.com/secretflow/spu, 02ac612) and CrypTen (775868a) have
the same exponential, without the cut. Made for shared secrets, where a product is dear, a comparison dearer and a table
impossible; for plain numbers it needs t multiplications and nothing else. t = 8 is what SPU and CrypTen take if not
told otherwise, t = 5 what PUMA's LLaMA-7B has. The cut is necessary: for d > 2 * 2^t the even power grows again, to
3e10 at d = 100 for t = 5. So it is a limit of d itself here, in front of the power.
Input: any f32 (-inf is masked, +inf takes all the weight), or 8-bit integers with a step of `step` per unit. A distance
is rounded to 2^-f.
Integers: unsigned fixed point of f fraction bits (the sources: 16 to 18 in a ring of 64 bits); d at most 14 * 2^f, b
and w at most 2^f. b is rounded down and so is each square, by a shift (the sources' shifts of shares are off by one
unit at random). Squares, at most 2^40, are i64.
Normalizer: i64 sum of w, at most 2^f N, which fits any row.
Error of w, at most: 8.6e-3 for t = 5 and 1.06e-3 for t = 8, from the limit (0.28 / 2^t in general, near d = 2), and
2^(t+1-f) from rounding down. Both make it less than e^-d. The share of the sources, w times a reciprocal found by
Newton's steps, is here the division by the sum.
Calibration: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.methods import Method, Options, Outputs, option
from softq.methods._scale import integer_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance

CUT = 14
"""PUMA's: e^-14 is 8e-7, below a unit of 18 fraction bits. Below 2^t for each t allowed, so that b is positive."""


@dataclass(frozen=True)
class LimitExpOptions(Options):
    """Squarings and width."""

    bits: int = option(18, "fraction bits of all numbers", low=8, high=20)
    squarings: int = option(8, "how often 1 - d / 2^squarings is squared", low=4, high=10)
    step: float = integer_step(1.0)


def _trace(t: Trace, options: LimitExpOptions) -> Outputs:
    bits, squarings = options.bits, options.squarings
    one, cut = 1 << bits, CUT << bits
    d = integer_distance(t, 2.0**-bits, cut, options.step)
    value = t.cast(one - ((d.row + ((1 << squarings) - 1)) >> squarings), DType.I64)
    for _ in range(squarings):
        value = (value * value) >> bits
    # Masked elements are at the cut, too.
    weights = t.select(d.row < cut, value, 0)
    return {"weights": t.cast(weights, DType.U32), "normalizer": d.normalizer(t.row_sum(weights))}


METHOD = Method(
    name="limit-exp",
    summary="(1 - d / 2^t)^(2^t) by t squarings in fixed point, as secure computation takes it.",
    source="PUMA, arXiv 2307.12533",
    options=LimitExpOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
