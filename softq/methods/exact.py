"""The exact softmax in float32, as a row program: w = e^(x - max), S = sum(w), p = w / S.

Source: the definition (ONNX Softmax-13), with the maximum subtracted first. e^-d by range reduction and a polynomial,
`softq.rowprog.library.exp_minus`.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, S in [1, N].
Error: each weight within 1e-7 of e^-d, relatively; p within 2e-7 + N * 2^-24 (the sum's rounding, in any order),
relatively, where p > 2.8e-38, below which it is 0.
Calibration: none.
"""

from __future__ import annotations

from softq.methods import Method, Outputs
from softq.methods._roundings import FloatOptions
from softq.rowprog import Trace
from softq.rowprog.library import distance, exp_minus


def _trace(t: Trace, options: FloatOptions) -> Outputs:
    d = distance(t)
    return d.pair(exp_minus(t, d.row))


METHOD = Method(
    name="exact",
    summary="The float32 softmax itself, as plain arithmetic; the reference for all others.",
    source="ONNX operator Softmax, version 13",
    options=FloatOptions,
    trace=_trace,
    drop_in=True,
    contract=True,
    operator="Softmax",
    logarithms=True,
)
