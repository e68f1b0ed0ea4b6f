"""Powers of two of the probabilities: c = min(rint(-log2 p), 2^b - 1), p' = 2^-c, and 0 for the greatest code.

Source: the log2 quantizer of FQ-ViT (Lin et al., IJCAI 2022, arXiv 2111.13824, equation of Log-Int-Softmax's
quantizer: clip(round(-log2 p), 0, 2^b - 1)), with p from the exact softmax and the greatest code given to exact
zero: without it each masked element would keep a weight of 2^-(2^b - 1).
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: code c in [0, 2^b - 1]; p' is an exact power of two, or 0.
Accumulator: none in the program; the product with V is a shift by c.
Error: p' / p in [2^-0.5, 2^0.5] for p >= 2^-(2^b - 1.5), 0 below. The row's sum is not 1.
-log2 p is computed as d * log2(e) + log2(S), d the distance from the maximum and S the sum of e^-d, without a division.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from softq.methods._contract import Method, Options, OptionValue, option
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import LOG2_E, distance, exp_minus


@dataclass(frozen=True)
class Log2Options(Options):
    """Width of the codes."""

    bits: OptionValue = option(4, "bits of a code", low=2, high=6)


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, Log2Options)
    top = 2 ** int(options.bits) - 1
    d = distance(t)
    total = t.row_sum(exp_minus(t, d.row))
    # Each row that is not fully masked has S >= 1; with 1 in its place a fully masked row gets the code of zero.
    level = t.max(d.row, 0.0) * t.const(LOG2_E, DType.F32) + t.log2(t.max(total, 1.0))
    codes = t.cast(t.clamp(t.rint(level), 0.0, float(top)), DType.U8)
    p = t.lut(t.table([2.0**-c for c in range(top)] + [0.0], DType.F32), codes)
    # 0 / 0 of the exact softmax: a fully masked row is NaN here too, and the site's policy says what becomes of it.
    undefined = d.is_nan | (total <= 0.0)
    return {"probabilities": t.select(undefined, math.nan, p), "codes": codes}


METHOD = Method(
    name="log2",
    summary="Exact softmax, then the nearest power of two, with a code for exact zero.",
    source="FQ-ViT, Lin et al., IJCAI 2022, arXiv 2111.13824; the zero code is softq's",
    options=Log2Options,
    trace=_trace,
    integer_scores=False,
    drop_in=True,
    calibration="none",
    contract=False,
    coarseness=2**0.5 - 1,
)
