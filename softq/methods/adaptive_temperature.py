"""The softmax, sharpened where it is flat: p = softmax(theta * x), theta from the entropy H of softmax(x) in nats.

theta = max(-0.037 H^4 + 0.481 H^3 - 2.3 H^2 + 4.917 H - 1.791, 1) for H > 0.5, else 1.
Source: Velickovic et al., softmax is not enough (for sharp out-of-distribution), arXiv 2410.01104, whose polynomial was
fitted to a task of finding a maximum. It was meant for inference of models trained with the softmax, and is best after
fine-tuning. It rises up to H = 4.41 and falls beyond, to theta = 1 at H = 5.94 (rows of some 380 equal scores); nothing
is said of such H, so H is held at 4.41 there, or with beyond=published the polynomial is taken as it is.
H = ln S + sum(e^-d * d) / S with d the distance from the greatest score and S = sum(e^-d).
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, S and the sum of theta's exponentials, in [1, N]; sum(e^-d * d) <= N / e.
Error: H within 2e-6 + N * 2^-22, theta within 3 times that; p within (d * (error of theta) + 2e-7 + N * 2^-24) * p.
Calibration: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import softmax
from softq.rowprog import DType, Trace
from softq.rowprog.library import EXP_LIMIT, exp_minus, horner

_COEFFICIENTS = tuple(map(Fraction, ("-0.037", "0.481", "-2.3", "4.917", "-1.791")))
"""Of H^4, H^3, H^2, H and 1, as published."""

_CENTRE = 3
"""The polynomial is evaluated in H - 3, where its terms are small: in H they cancel to a twentieth of their size."""

_LEAST = 0.5
"""Rows of less entropy are sharp already."""

_PEAK = 4.41
"""Where the polynomial is greatest: its derivative, -0.148 H^3 + 1.443 H^2 - 4.6 H + 4.917, is 0 at 4.4124."""


@dataclass(frozen=True)
class AdaptiveTemperatureOptions(FloatOptions):
    """What holds beyond the polynomial's greatest value."""

    beyond: Literal["held", "published"] = option("held", "what becomes of entropies above 4.41")


def _trace(t: Trace, options: AdaptiveTemperatureOptions) -> Outputs:
    p = softmax(t)
    near = t.min(p.from_zero(t), EXP_LIMIT)
    entropy = t.log2(p.divisor) * t.const(math.log(2), DType.F32) + t.divide(
        t.row_sum(p.exponentials * near), p.divisor
    )
    h = t.min(entropy, t.const(_PEAK, DType.F32)) if options.beyond == "held" else entropy
    theta = horner(t, h - float(_CENTRE), _around(_CENTRE))
    return p.distance.pair(exp_minus(t, p.distance.row * t.select(entropy > _LEAST, t.max(theta, 1.0), 1.0)))


def _around(centre: int) -> list[float]:
    """Return the coefficients in H - centre, constant first, by repeated synthetic division, exactly."""
    rest, found = list(_COEFFICIENTS), list[float]()
    while rest:
        for i in range(1, len(rest)):
            rest[i] += rest[i - 1] * centre
        found.append(float(rest.pop()))
    return found


METHOD = Method(
    name="adaptive-temperature",
    summary="The softmax, sharpened by a polynomial of its entropy, for models trained or tuned with it.",
    source="softmax is not enough, Velickovic et al., arXiv 2410.01104",
    options=AdaptiveTemperatureOptions,
    trace=_trace,
    written=lambda f: ({"beyond": "published"}, {}),
    contract=True,
)
