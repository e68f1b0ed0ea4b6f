"""The exact softmax with a running maximum: one pass for maximum and sum together, a second one for the weights.

    for each score x:  m' = max(m, x),  S' = S * e^(m - m') + e^(x - m')
    w = e^(x - m), p = w / S with the last m and S

Of the two exponentials one is always 1, so that e^-|x - m| alone is computed. The pairs (m, S) of parts of a row merge
by the same rule, in any order: a kernel may take the parts on several lanes and merge them at the end.

Source: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3; its code github.com/NVIDIA/online-softmax (f4c607f). As
there, m starts at the least finite number and not at -inf, so that a leading -inf is no -inf - -inf.
What the running maximum saves is one read of the scores. The form in several passes is `exact`, with the same weights;
where scores are kept, take that one: onnxruntime loops over the elements of this one. The source's Softmax and TopK in
one pass is the pass `fuse-topk`.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, S in [1, 2^24]; one added to 2^24 leaves it, in any program of f32.
Types: the differences and the exponentials of both passes are rounded, by which S is rescaled too; S itself once,
behind the last element.
Error: each weight within 1e-7 of e^-d, relatively. S within 1e-7 * (1 + rises of the maximum) + N * 2^-23: each element
costs one rounding of the sum and at most one of the rescaling.
Calibration: none.
"""

from __future__ import annotations

import math

from softq.methods import Method, Outputs
from softq.methods._roundings import FloatOptions
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import F32_MAX, Distance, exp_minus, in_type, mask_scores

_GREATEST_SUM = float(2**24)


def _trace(t: Trace, options: FloatOptions) -> Outputs:
    x, is_nan = mask_scores(t)

    def step(greatest: Value, total: Value, score: Value) -> tuple[list[Value], list[Value]]:
        rises = score > greatest
        after = t.select(rises, score, greatest)
        # A second score of +inf has the difference NaN, which counts as 0.
        e = exp_minus(t, in_type(t, "difference", t.select(rises, score - greatest, greatest - score)))
        # Intervals do not see that the exponential is positive.
        return [after, t.clamp(t.select(rises, total * e + 1.0, total + e), 0.0, _GREATEST_SUM)], []

    start = [t.const(-F32_MAX, DType.F32), t.const(0.0, DType.F32)]
    (greatest, total), _ = t.scan(start, [x], step, [(-F32_MAX, math.inf), (0.0, _GREATEST_SUM)])
    d = Distance(in_type(t, "difference", greatest - x), is_nan, t)
    return d.pair(exp_minus(t, d.row), in_type(t, "sum", total))


METHOD = Method(
    name="exact-online",
    summary="The float32 softmax with a running maximum, two passes instead of three; for streams.",
    source="Milakov and Gimelshein, arXiv 1805.02867",
    options=FloatOptions,
    trace=_trace,
    drop_in=True,
    contract=True,
    logarithms=True,
)
