"""The point of the simplex nearest to the scores: p = max(x - tau, 0), tau such that sum(p) = 1.

Source: Martins and Astudillo, From Softmax to Sparsemax, ICML 2016, arXiv 1602.02068, equation 3; with d = max - x and
tau = max - s it is p = max(s - d, 0). The published algorithm sorts; here s is found in (0, 1] by 20 bisections and one
step of Newton, without sorting (`softq.methods._bisection`). Elements 1 or more below the greatest weigh exactly 0.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, sums of max(s - d, 0), in [0, N].
Error: s lies within 2^-20 + N * 2^-23 of the exact one: at an element that lies within 2^-20 of the threshold Newton's
step may take the wrong line. Each p within twice that, and their sum, by which they are divided, is 1 to rounding.
Calibration: none.
"""

from __future__ import annotations

from softq.methods import Method, Outputs
from softq.methods._bisection import simplex
from softq.methods._roundings import FloatOptions
from softq.rowprog import Trace
from softq.rowprog.library import distance, in_type


def _trace(t: Trace, options: FloatOptions) -> Outputs:
    d = distance(t)
    weights, total = simplex(t, t.max(d.row, 0.0), 1)
    return d.pair(weights, in_type(t, "sum", total))


METHOD = Method(
    name="sparsemax",
    summary="The nearest point of the simplex, with exact zeros, for models trained with it.",
    source="Sparsemax, Martins and Astudillo, ICML 2016, arXiv 1602.02068",
    options=FloatOptions,
    trace=_trace,
    written=lambda f: ({},),
)
