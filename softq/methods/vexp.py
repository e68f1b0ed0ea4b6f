"""The exponential by Schraudolph's method and a quadratic on each half of an octave, in bfloat16.

    y = (x - max) log2 e, i = floor(y), f = y - i in [0, 1):  w = R((1 + P(f)) 2^i),  p = w / sum(w)
    P(f) = a f (f + g),  f < 1/2;   P(f) = 1 - b (1 - f) (f + h),  f >= 1/2
    a = 1 / 4, g = 363 / 128, b = 7 / 16, h = 139 / 64

Schraudolph's method takes f itself for 2^f - 1; P bends it, with products of few bits, so that what stands in the
mantissa is right. R rounds to bfloat16, which is what the instruction gives (rounding = none leaves float32).

Source: VEXP, arXiv 2504.11227, section on the arithmetic block, whose method is that of SoftEx (Belano et al., arXiv
2412.06321). The coefficients are those of SoftEx's circuit (github.com/belanoa/softex, 77f219d, rtl/softex_pkg.sv and
rtl/expu/expu_correction.sv), which rounds 0.24609375 and 0.41015625 to 4 bits behind the point, and 2.8359375 and
2.16796875 to 7: 4/16, 7/16, 363/128 and 278/128. With them the mean error below is the 0.14% that SoftEx states.
Whether VEXP's own circuit has the same numbers could not be read. SoftEx's works on bfloat16 scores in fixed point and
cuts products off to 7 bits; here y is float32, and the result is rounded.
Input: any f32; -inf is masked, +inf takes all the weight. From 125 octaves below the maximum on, w is 0.
Integers: i, in [-125, 0]. Accumulator: f32, the sum in [1, N].
Error: w within 0.34% of e^-d, relatively, before R, and within 0.65% behind it; 0.14% and 0.20% on average.
Calibration: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softq.methods import Method, Outputs, option
from softq.methods._octaves import OCTAVES, split_octaves
from softq.methods._roundings import FloatOptions
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import distance, in_type
from softq.rowprog.rounding import round_to

_A, _G, _B, _H = 1 / 4, 363 / 128, 7 / 16, 139 / 64


@dataclass(frozen=True)
class VexpOptions(FloatOptions):
    """How results are rounded."""

    rounding: Literal["bf16", "none"] = option("bf16", "the type of exponentials: bfloat16, as published, or float32")


def _mantissa(t: Trace, f: Value) -> Value:
    """Return 2^f of f in [0, 1)."""
    lower = f * (f + t.const(_G, DType.F32)) * t.const(_A, DType.F32) + 1.0
    upper = 2.0 - (1.0 - f) * (f + t.const(_H, DType.F32)) * t.const(_B, DType.F32)
    return t.select(f < 0.5, lower, upper)


def _trace(t: Trace, options: VexpOptions) -> Outputs:
    d = distance(t)
    octaves, below, rest = split_octaves(t, d)
    value = _mantissa(t, rest) * t.exp2i(t.cast(0.0 - below, DType.I32))
    rounded = value if options.rounding == "none" else round_to(t, value, options.rounding, signed=False)
    return d.pair(in_type(t, "exponential", t.select(octaves <= OCTAVES, rounded, 0.0)))


METHOD = Method(
    name="vexp",
    summary="Exponentials by Schraudolph's method and a quadratic on each half octave, in bfloat16.",
    source="VEXP, arXiv 2504.11227",
    options=VexpOptions,
    trace=_trace,
    drop_in=True,
)
