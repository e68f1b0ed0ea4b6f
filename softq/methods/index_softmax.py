"""IndexSoftmax: a distance clipped at 6.6 selects one of 32 exponentials of 8 bits, the last of them an exact zero.

    T = round(clip / step), D = min(max - X, T), i = round(D * L / T), L = 2^b - 1
    e[i] = round(255 * exp(-clip * i / L)) for i < L, and 0 for i = L
    p = round(255 * e / sum(e)) / 255

Source: IntAttention, MLSys 2026, arXiv 2511.21513, section on IndexSoftmax; its released code
(github.com/WanliZhong/IntAttention, bccbdfa) truncates T and i where the paper rounds, which makes exp up to 24 % too
great. `index=rounded` is the paper, `index=truncated` the released code.
Input: 8-bit integer scores with a step of `step` per unit, or any f32, of which i = rint((max - x) * L / clip), half to
even (truncated: found to 1/256, then its floor); -inf is masked, +inf takes all the weight.
Integers: index of b bits; for integer scores (2 D L + T) div (2 T), where D <= 255 and L <= 255, within 18 bits for
T <= 2^17; a greater T acts like one of 2^17, for which every i of an 8-bit distance is 0. Weight e, u8, scale 1/255.
Normalizer: sum of e, u32, at most 255 N, which fits for N < 2^24.
output=pair gives e and its sum, so that the division can stand behind the product with V; output=uint8 is the published
format: round(255 * e / sum), half up, and the normalizer 255. A fully masked row gives 0 (the released code divides by
0 there). The published product with V, 255 * 127 * N, fits 32 bits for N <= 66,311.
Error: of exp(-d), half a step of clip / L with rounded indices (0.10 at most for b = 5), exp(-clip) beyond the clip.
output=uint8 rounds each p to 1/255, so that long flat rows lose much of their sum.
Calibration: none; the paper finds a plateau for b >= 4 and clips from 5.5 to 7.7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from softq.errors import UsageError
from softq.methods import Method, Options, Outputs, option
from softq.methods._outputs import Bias, as_pair, as_probabilities, bias_option
from softq.methods._scale import integer_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import integer_distance

_SCALE = 255
_LARGEST_CLIP = 2**17
_PARTS = 256


@dataclass(frozen=True)
class IndexSoftmaxOptions(Options):
    """Size and range of the table, how the index is found, and what comes out."""

    bits: int = option(5, "bits of an index into the table", low=2, high=8)
    clip: float = option(6.6, "distance from which on a weight is 0", low=1.0, high=32.0)
    index: Literal["rounded", "truncated"] = option("rounded", "rounded as in the paper, or as in its code")
    output: Literal["pair", "uint8"] = option("pair", "weights and their sum, or probabilities of 8 bits as published")
    bias: Bias = bias_option()
    step: float = integer_step()


def weight_table(bits: int, clip: float) -> list[int]:
    """Return the exponentials of all indices."""
    last = 2**bits - 1
    return [round(_SCALE * math.exp(-clip * i / last)) for i in range(last)] + [0]


def _trace(t: Trace, options: IndexSoftmaxOptions) -> Outputs:
    last, clip, step = 2**options.bits - 1, options.clip, options.step
    rounded = options.index == "rounded"
    if t.scores.dtype.is_float:
        d = integer_distance(t, clip / last / (1 if rounded else _PARTS), last * (1 if rounded else _PARTS))
        index = d.row if rounded else d.row >> (_PARTS.bit_length() - 1)
    else:
        clipped = min(math.floor(clip / step + 0.5 * rounded) if step > 0 else 0, _LARGEST_CLIP)
        if clipped < 1:
            raise UsageError(f"index-softmax: step is {step:g}; integer scores need one above 0 and below the clip")
        d = integer_distance(t, step, 255, step)
        index = t.min(d.row, clipped) * (2 * last)
        index = t.divide(index + clipped if rounded else index, 2 * clipped)
    weights = t.lut(t.table(weight_table(options.bits, clip), DType.U8), index)
    # An excluded float element has the last index, whose weight is 0 already.
    weights = weights if t.scores.dtype.is_float else d.weigh(weights)
    wide = t.cast(weights, DType.U32)
    total = t.row_sum(wide)
    if options.output == "pair":
        return as_pair(d, weights, total, options.bias)
    codes = t.divide(wide * _SCALE + (total >> 1), t.max(total, 1))
    codes = t.cast(t.min(codes, _SCALE), DType.U8)
    return as_probabilities(d, codes, total, _SCALE, options.bias, _SCALE)


METHOD = Method(
    name="index-softmax",
    summary="A clipped distance selects one of 32 exponentials of 8 bits.",
    source="IntAttention, MLSys 2026, arXiv 2511.21513",
    options=IndexSoftmaxOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
)
