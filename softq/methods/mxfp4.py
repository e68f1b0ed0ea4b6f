"""Weights in MXFP4: numbers of 4 bits, and a power of two for each block of 32 consecutive ones.

    e_j = exp(x_j - max),  X_b = 2^(floor(log2 max_b e) - 2),  w_j = X_b R(e_j / X_b),  output = sum(w_j V_j) / sum(w_j)

b is the block of j, 32 consecutive keys, the last one perhaps shorter; R rounds to E2M1 (0, 1/2, 1, 3/2, 2, 3, 4, 6),
half to even, and saturates. With scale = up, X_b is the least power of two that is at least max_b e / 6. With sum =
exact, products are divided by sum(e_j). 4.25 bits a weight, the scale counted.

Source: MX, Open Compute Project, Microscaling Formats Specification, version 1.0: table 1 for the formats, section 6.3
for the scale.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, the sum in [3/4, N].
Error: each weight within 1/5 of e, relatively, from X_b on, and within X_b / 4 below; with scale = down the numbers
of a block that are above 6 X_b fall to it, by up to 1/4 of them. Scales end at 2^-100.
Calibration: optional; `sum` can be fitted on the squared error of P V, per site or per head.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.methods._coded import MX_BLOCK, CodedOptions, ScaleRounding, coded_method, in_blocks, scale_option
from softq.rowprog import Trace, Value


@dataclass(frozen=True)
class MxFp4Options(CodedOptions):
    """How scales are rounded."""

    scale: ScaleRounding = scale_option()


def _code(t: Trace, options: MxFp4Options, values: Value, *, signed: bool = False) -> Value:
    return in_blocks(t, values, "e2m1", MX_BLOCK, options.scale, signed=signed)


METHOD = coded_method(
    name="mxfp4",
    summary="Exponentials in MXFP4, blocks of 32 with a power of two, the division behind the product with V.",
    source="OCP Microscaling Formats 1.0",
    options=MxFp4Options,
    code=_code,
    column=lambda t, options: _code(t, options, t.scores, signed=True),
)
