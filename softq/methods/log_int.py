"""FQ-ViT's Log-Int-Softmax: I-BERT's integer exponential, and of its share in the sum the integer logarithm, 4 bits.

    e = I-BERT's exponential (`softq.methods._integer_exp`), ratio = round(sum(e) / e)
    code = floor(log2(ratio)), and one more where ratio >= 1.5 * 2^code;  p = 2^-code, and 0 for codes from 2^b on

Source: FQ-ViT, IJCAI 2022, arXiv 2111.13824, Log-Int-Softmax, as in its code (github.com/megvii-research/FQ-ViT,
5daf591): the logarithm is rounded up from 1.5, not from sqrt 2, and e = m * 2^(30 - z) is only simulated in floats.
Here no element is divided: code >= k where ratio >= R_k, R_1 = 2 and R_k = 3 * 2^(k-2), hence where
e (2 R_k - 1) <= 2 sum (below it for the odd R_2, since ties of the ratio go to the even one), hence where e is at most
one whole number per row and k.
Input: any f32 (-inf is masked, +inf takes all the weight), rounded to units of S = `step`, or 8-bit integers of that
step. An exponential of 0 has an infinite ratio: its code is the zero.
arithmetic=int32: e has 15 bits, as in `i-exp`, and 2 sum(e) fits u32 for N <= 65,538. arithmetic=int64 is the
published e, of 40 bits for S = 0.06, and 2 sum(e) fits 63 bits for N <= 65,536 where S >= 2^-7; range analysis refuses
greater N and lesser steps.
Weights: 2^(2^b - 1 - code), at most 2^15 for b = 4, with the constant normalizer 2^(2^b - 1): the published format, a
shift of V by the code. Their product with int8 V needs 23 + log2(N) bits.
Error: p' / p in (2/3, 3/2], and what the exponential adds (see `i-exp`), for p > 2^-(2^b - 0.6); 0 below. The row's sum
is not 1, but 1.04 to 1.08 on average.
Calibration: none; the scale of integer scores is the graph's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softq.methods import Auto, Method, Options, Outputs, option
from softq.methods import _integer_exp as integer_exp
from softq.methods._scale import scaled_distance, step_option
from softq.rowprog import DType, Trace

_DISTANCE_BITS = 8
_WEIGHT_BITS = 15
_PUBLISHED_OCTAVES = 30


@dataclass(frozen=True)
class LogIntOptions(Options):
    """Width of the codes, scale of distances, width of the exponential."""

    bits: int = option(4, "bits of a code", low=2, high=4)
    step: float | Auto = step_option("ln 2 / 12")
    arithmetic: Literal["int32", "int64"] = option(
        "int32", "width of sums: an exponential of 15 bits, or the published one"
    )


def _trace(t: Trace, options: LogIntOptions) -> Outputs:
    step = integer_exp.step_of(_DISTANCE_BITS, options.step)
    d = scaled_distance(t, _DISTANCE_BITS, options.step, step)
    if options.arithmetic == "int32":
        share = integer_exp.weights(t, d.row, step, _WEIGHT_BITS)
    else:
        e = integer_exp.exponential(t, d.row, step, _PUBLISHED_OCTAVES)
        share = t.cast(e.mantissa, DType.I64) << t.cast(_PUBLISHED_OCTAVES - e.octaves, DType.I64)
    share = d.weigh(share)
    total = t.row_sum(share)
    twice = t.max(total, 1) * 2
    codes = t.const(0, DType.I32)
    for code in range(1, 2**options.bits + 1):
        ratio = 2 if code == 1 else 3 * 2 ** (code - 2)  # the least whole one that has this code or a greater one
        most = t.divide(twice - ratio % 2, 2 * ratio - 1)
        codes = codes + t.select(share <= most, t.const(1, DType.I32), 0)
    top = 2**options.bits - 1
    weights = t.lut(t.table([2 ** (top - c) for c in range(top + 1)] + [0], DType.U32), codes)
    return {"weights": weights, "normalizer": d.one(total, 2**top), "codes": t.cast(codes, DType.U8)}


METHOD = Method(
    name="log-int",
    summary="I-BERT's integer exponential, then the integer logarithm of its share: shifts of V by 4 bits.",
    source="FQ-ViT, IJCAI 2022, arXiv 2111.13824",
    options=LogIntOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
