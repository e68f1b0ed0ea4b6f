"""Half-way between the softmax and sparsemax: p = max(x / 2 - tau, 0)^2, tau such that sum(p) = 1.

Source: 1.5-entmax, Peters, Niculae and Martins, Sparse Sequence-to-Sequence Models, ACL 2019, arXiv 1905.05702,
equation 13 with alpha = 1.5; with d = (max - x) / 2 and tau = max / 2 - s it is p = max(s - d, 0)^2. The published
algorithm sorts; here s is found in (0, 1] by 20 bisections and one step of Newton, without sorting
(`softq.methods._bisection`). Elements 2 or more below the greatest weigh exactly 0.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, sums of max(s - d, 0)^2, in [0, N].
Error: s lies within 2^-20 + N * 2^-23 of the exact one, mostly far nearer, as the sum is smooth; each p within twice
that, and their sum, by which they are divided, is 1 to rounding.
Calibration: none.
"""

from __future__ import annotations

from softq.methods import Method, Outputs
from softq.methods._bisection import simplex
from softq.methods._roundings import FloatOptions
from softq.rowprog import DType, Trace
from softq.rowprog.library import distance, in_type


def _trace(t: Trace, options: FloatOptions) -> Outputs:
    d = distance(t)
    weights, total = simplex(t, t.max(d.row * t.const(0.5, DType.F32), 0.0), 2)
    return d.pair(weights, in_type(t, "sum", total))


METHOD = Method(
    name="entmax15",
    summary="1.5-entmax, half-way to sparsemax, with exact zeros, for models trained with it.",
    source="1.5-entmax, Peters, Niculae and Martins, ACL 2019, arXiv 1905.05702",
    options=FloatOptions,
    trace=_trace,
    written=lambda f: ({},),
)
