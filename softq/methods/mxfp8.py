"""Weights in MXFP8: numbers of 8 bits, and a power of two for each block of 32 consecutive ones.

    e_j = exp(x_j - max),  X_b = 2^(floor(log2 max_b e) - E),  w_j = X_b R(e_j / X_b),  output = sum(w_j V_j) / sum(w_j)

b is the block of j, 32 consecutive keys, the last one perhaps shorter; R rounds to E4M3 (E = 8) or E5M2 (E = 15), half
to even, and saturates. With scale = up, X_b is the least power of two that is at least max_b e / G, G the greatest
number of the format. With sum = exact, products are divided by sum(e_j). 8.25 bits a weight, the scale counted.

Source: MX, Open Compute Project, Microscaling Formats Specification, version 1.0: table 1 for the formats, section 6.3
for the scale; rounding it up instead is NVIDIA's recipe, arXiv 2506.08027. Not yet divided: SageAttention3, arXiv
2505.11594.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, the sum in [7/8, N].
Error: each weight within 2^-4 of e (E4M3; E5M2 2^-3), relatively, and within 2^-10 X_b below 2^-6 X_b (2^-17 and
2^-14); with scale = down the numbers of a block that are above G X_b fall to it, by up to 1/8 of them. Scales end at
2^-100: a block whose greatest weight is below 2^-92 (2^-85) has subnormal codes.
Calibration: optional; `sum` can be fitted on the squared error of P V, per site or per head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softq.methods import option
from softq.methods._coded import MX_BLOCK, CodedOptions, ScaleRounding, coded_method, in_blocks, scale_option
from softq.rowprog import Trace, Value


@dataclass(frozen=True)
class MxFp8Options(CodedOptions):
    """The format of numbers, and how scales are rounded."""

    format: Literal["e4m3", "e5m2"] = option("e4m3", "the format of weights")
    scale: ScaleRounding = scale_option()


def _code(t: Trace, options: MxFp8Options, values: Value, *, signed: bool = False) -> Value:
    return in_blocks(t, values, options.format, MX_BLOCK, options.scale, signed=signed)


METHOD = coded_method(
    name="mxfp8",
    summary="Exponentials in MXFP8, blocks of 32 with a power of two, the division behind the product with V.",
    source="OCP Microscaling Formats 1.0",
    options=MxFp8Options,
    code=_code,
    column=lambda t, options: _code(t, options, t.scores, signed=True),
)
