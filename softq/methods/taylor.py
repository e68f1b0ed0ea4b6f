"""The Taylor polynomial of the exponential in its place: w = T_k(x), S = sum(w), T_k(x) = sum of x^i / i! for i <= k.

Source: Taylor-softmax, de Brebisson and Vincent, An Exploration of Softmax Alternatives Belonging to the Spherical
Loss Family, ICLR 2016, arXiv 1511.05042, with k = 2; TaylorShift, Nauen et al., ICPR 2024, arXiv 2403.02920, takes the
same function of scores that it keeps short. k is even: T_k is then positive everywhere, at least 0.5, 0.27 and 0.14
for k = 2, 4 and 6. It is no softmax: nothing is subtracted first, so a shift of the scores changes the result, and
scores below about -1, -1.6 and -2.2 weigh *more* the lower they are. Nearer than .01 to the softmax it is only for
|x| < 0.5 (k = 2).
Input: any finite f32. With M = max(1, greatest |x| of the row) the weights are T_k(x) / M^k, by Horner's rule on x / M,
where nothing overflows; only the ratio to S counts. +inf takes all the weight, -inf is masked; a finite score of -5000
or less that is 104 or more below the row's greatest counts as masked.
8-bit integer scores: x = step * (score - zero), a table of 256 weights of W bits, and their sum in u32.
Integers: for float scores none. Accumulator: f32, S <= N * e, and S >= 2^-3 * M^-k.
Error: terms of both signs cancel where x < 0: each weight is within (k + 1) * 2^-23 * T_k(|x|) / T_k(x) of the exact
one, relatively; that ratio is at most 6, 21 and 69. Weights below 2^-126 of the greatest |x|^k are lost.
Calibration: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from softq.errors import UsageError
from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, scores, step_option, units, weight_bits_option, zero_option
from softq.rowprog import DType, Trace
from softq.rowprog.library import in_type


@dataclass(frozen=True)
class TaylorOptions(FloatOptions):
    """Degree of the polynomial."""

    unnamed = FLOATS

    order: int = option(2, "degree of the polynomial, even", low=2, high=6)
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _trace(t: Trace, options: TaylorOptions) -> Outputs:
    order = options.order
    if order % 2:
        raise UsageError(f"taylor: order is {order}; allowed is 2, 4 or 6: odd polynomials are negative somewhere")
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x = scores(t)
    size = x.only(t.select(x.row < 0.0, 0.0 - x.row, x.row))
    inverse = t.divide(t.const(1.0, DType.F32), t.max(t.row_max(size), 1.0))
    u = x.row * inverse
    weights, power = t.const(1 / math.factorial(order), DType.F32), t.const(1.0, DType.F32)
    for i in reversed(range(order)):
        power = power * inverse
        weights = weights * u + power * t.const(1 / math.factorial(i), DType.F32)
    return x.pair(weights, in_type(t, "sum", t.row_sum(x.only(weights))))


def _trace_integer(t: Trace, options: TaylorOptions) -> Outputs:
    x, order = units(t, options.step, options.zero, options.weight_bits), options.order
    weights, _ = x.share(lambda score: sum(score**i / math.factorial(i) for i in range(order + 1)))
    return {"weights": weights, "normalizer": t.row_sum(weights)}


METHOD = Method(
    name="taylor",
    summary="The Taylor polynomial of the exponential, for models trained with it.",
    source="Taylor-softmax, de Brebisson and Vincent, ICLR 2016, arXiv 1511.05042",
    options=TaylorOptions,
    trace=_trace,
    integer_scores=True,
    written=lambda f: ({"order": order} for order in (2, 4, 6)),
    contract=True,
)
