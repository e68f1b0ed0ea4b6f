"""Powers of two of the probabilities: c = min(rint(-log2 p), 2^b - 1), p' = 2^-c, and 0 for the greatest code.

Source: the log2 quantizer of FQ-ViT (Lin et al., IJCAI 2022, arXiv 2111.13824, equation of Log-Int-Softmax's
quantizer: clip(round(-log2 p), 0, 2^b - 1)), with p from the exact softmax and the greatest code given to exact
zero: without it each masked element would keep a weight of 2^-(2^b - 1). In FQ-ViT's code zero has a code of its own,
2^b and what lies beyond (zero=beyond).
Its code (megvii-research/FQ-ViT@5daf591) rounds elsewhere too, which is threshold=ratio: of the whole number
R = rint(1 / p), half to even, c is floor(log2 R), and one more where R >= 1.5 * 2^c. So a code begins at 1.5 and not at
sqrt(2) of the power below it. With its integer exponential that is the method `log-int`.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: code c in [0, 2^b - 1] (2^b with zero=beyond); p' is an exact power of two, or 0.
Accumulator: none in the program; the product with V is a shift by c.
Error: p' / p in [2^-0.5, 2^0.5] for p >= 2^-(2^b - 1.5), 0 below; with threshold=ratio in (2/3, 3/2], but for R = 3,
where p may be up to 0.4 and p' / p down to 5/8. The row's sum is not 1.
-log2 p is computed as d * log2(e) + log2(S), d the distance from the maximum and S the sum of e^-d, without a division.
With threshold=ratio c is floor(log2(R * 4/3) + 2^-17): the logarithm of a power of two may come out lower, by 2^-18 at
most up to 2^16, and what lies below a border, R one less, is further away for borders up to there.
Calibration: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import Softmax, Zero, levels, minus_log2, softmax, to_codes, zero_option
from softq.rowprog import DType, Trace, Value


@dataclass(frozen=True)
class Log2Options(FloatOptions):
    """Width of the codes, and where one ends."""

    bits: int = option(4, "bits of a code", low=2, high=6)
    threshold: Literal["logarithm", "ratio"] = option(
        "logarithm", "what is rounded: the logarithm, or as in FQ-ViT's code the ratio 1 / p, linearly"
    )
    zero: Zero = zero_option()

    @property
    def structure(self) -> str:
        """Names what is not the default."""
        words = [self.threshold] * (self.threshold == "ratio") + [self.zero] * (self.zero != "code")
        return "_".join([f"b{self.bits}", *map(str, words)])


def _trace(t: Trace, options: Log2Options) -> Outputs:
    top, p = levels(options.bits, options.zero), softmax(t)
    codes = _codes_of_ratio(t, p, top) if options.threshold == "ratio" else to_codes(t, minus_log2(t, p), top)
    decoded = t.lut(t.table([2.0**-c for c in range(top)] + [0.0], DType.F32), codes)
    # 0 / 0 of the exact softmax: a fully masked row is NaN here too, and the site's policy says what becomes of it.
    undefined = p.distance.is_nan | (p.total <= 0.0)
    return {"probabilities": t.select(undefined, math.nan, decoded), "codes": codes}


def _codes_of_ratio(t: Trace, p: Softmax, top: int) -> Value:
    ratio = t.rint(t.divide(p.divisor, p.exponentials))  # infinite where the exponential is 0
    level = t.log2(ratio * t.const(4 / 3, DType.F32)) + t.const(2.0**-17, DType.F32)
    return t.cast(t.clamp(level, 0.0, float(top)), DType.U8)


METHOD = Method(
    name="log2",
    summary="Exact softmax, then the nearest power of two, with a code for exact zero.",
    source="FQ-ViT, Lin et al., IJCAI 2022, arXiv 2111.13824; the zero code is softq's",
    options=Log2Options,
    trace=_trace,
    drop_in=True,
)
