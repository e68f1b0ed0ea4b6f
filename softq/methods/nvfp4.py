"""Weights in NVFP4: numbers of 4 bits, a scale in E4M3 for each block of 16 consecutive ones, and one for all.

    e_j = exp(x_j - max),  z_j = 6 * 448 e_j,  s_b = R8(max_b z / 6),  w_j = s_b R4(z_j / s_b)
    output = sum(w_j V_j) / sum(w_j)

b is the block of j, 16 consecutive keys, the last one perhaps shorter; R8 rounds to E4M3, R4 to E2M1, both half to
even, and both saturate. The scale for all, 1 / (6 * 448), makes the greatest weight of a row 6 with the greatest block
scale; it leaves with the quotient. With sum = exact, products are divided by 6 * 448 sum(e_j). 4.5 bits a weight, the
block scale counted.

With of = probabilities, the scale for all is 1, and z_j = e_j / sum(e): what a quantizer of this format does behind a
softmax if nobody measures the range for it. Of N keys probabilities are about 1 / N, and the block scales fall below
the least number of E4M3, 2^-9, at once: where that makes s_b 0, the weights of the block are 0.

Source: SageAttention3, arXiv 2505.11594, section 3.2 for the two levels on exponentials. The format: NVIDIA,
Pretraining large language models with NVFP4, arXiv 2509.25149, appendix; E2M1 from MX 1.0, E4M3 from OFP8 1.0.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, the sum in [2,688 * 5 / 6, 2,688 N].
Error: a block's scale is within 2^-4 of what makes its greatest number 6, relatively; each weight within 1/5 of z, from
s_b on, and within s_b / 4 below; numbers above 6 s_b fall to it, by up to 2^-4 of them. A block whose greatest e is at
most 2^-18.8 = 2.2e-6 has weights of 0.
Calibration: optional; `sum` can be fitted on the squared error of P V, per site or per head.
"""

from __future__ import annotations

from softq.methods._coded import CodedOptions, coded_method, of_column, sizes
from softq.rowprog import DType, Trace, Value
from softq.rowprog.formats import FORMATS
from softq.rowprog.rounding import round_to

_BLOCK = 16
_NUMBERS, _SCALES = FORMATS["e2m1"], FORMATS["e4m3"]
_TOP = _NUMBERS.greatest * _SCALES.greatest
"""What the greatest number is over the scale for all."""


def in_two_levels(t: Trace, scaled: Value, *, signed: bool = False) -> Value:
    """Return numbers of at most 6 * 448 in NVFP4, without the scale for all."""
    sizes_of = sizes(t, scaled) if signed else scaled
    scale = round_to(t, t.group_max(sizes_of, _BLOCK) * t.const(1 / _NUMBERS.greatest, DType.F32), "e4m3", signed=False)
    # A scale of 0 cannot divide; the block is multiplied by it at the end, and zero whatever the divisor was.
    quotient = t.divide(scaled, t.max(scale, _SCALES.quantum))
    return round_to(t, quotient, "e2m1", signed=signed) * scale


def _one(options: CodedOptions) -> float:
    return 1.0 if options.of == "probabilities" else _TOP


def _code(t: Trace, options: CodedOptions, values: Value) -> Value:
    scaled = values if options.of == "probabilities" else values * t.const(_TOP, DType.F32)
    return in_two_levels(t, scaled)


def _column(t: Trace, options: CodedOptions) -> Value:
    scale, column = of_column(t, t.scores, _TOP)
    return in_two_levels(t, column, signed=True) * scale


METHOD = coded_method(
    name="nvfp4",
    summary="Exponentials in NVFP4, blocks of 16 with scales in E4M3, the division behind the product with V.",
    source="SageAttention3, arXiv 2505.11594",
    options=CodedOptions,
    code=_code,
    column=_column,
    one=_one,
)
