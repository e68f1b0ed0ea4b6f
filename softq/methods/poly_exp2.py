"""The exponential as a power of two: whole octaves by the exponent, the rest by a polynomial of degree 1 to 5.

    y = (x - max) log2 e, i = floor(y), f = y - i in [0, 1):  w = c(f) * 2^i,  p = w / sum(w)

Source: FlashAttention-4, arXiv 2603.05451, section on the emulation of exp2, and its code
(github.com/Dao-AILab/flash-attention, 0251105, flash_attn/cute/utils.py), which has the coefficients. There a part of
the elements only is computed so, the rest by the hardware's exponential; the running maximum is left as it is until it
rises by 8 octaves, which cancels in the quotient. Both are a matter of one processor's units and not of the numbers.
coefficients=published are those, best among the polynomials with c(0) = 1. coefficients=minimax are softq's, best among
all: c(0) is a little off 1, which again cancels. Each is the result of Remez' algorithm for the relative error on
[0, 1], rounded to f32; tests/test_method_poly_exp2.py computes them anew.

Greatest relative error of c(f), in f32 coefficients:

    degree       1        2        3        4        5
    published    3.88e-2  2.08e-3  8.77e-5  2.99e-6  8.54e-8
    minimax      2.99e-2  1.73e-3  7.49e-5  2.63e-6  9.03e-8

At degree 5 the rounding of the coefficients costs 1.5e-8, and the published ones, sought among f32 numbers, are better.
From degree 4 on it is below the rounding of f32 scores of some size, from degree 3 on below that of f16 and bf16 ones.

Input: any f32; -inf is masked, +inf takes all the weight. From 125 octaves below the maximum on, w is 0; the source
goes on to 127, to subnormal numbers.
Integers: i, in [-125, 0]. Accumulator: f32, the sum in [0.97, N].
Error: w within that of c, 1.2e-7 (rounding) and d * 7.3e-8 (rounding of y for a distance d), relatively; times 2 at
most for p.
Calibration: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from softq.methods import Method, Outputs, option
from softq.methods._octaves import OCTAVES, split_octaves
from softq.methods._roundings import FloatOptions
from softq.rowprog import DType, Trace
from softq.rowprog.library import distance, horner, in_type

PUBLISHED = {
    1: (1.0, 0.922497093677520751953125),
    2: (1.0, 0.6657850742340087890625, 0.330107033252716064453125),
    3: (1.0, 0.695146143436431884765625, 0.227564394474029541015625, 0.077119089663028717041015625),
    4: (1.0, 0.693042695522308349609375, 0.2412912547588348388671875, 0.052225358784198760986328125,
        0.013434938155114650726318359375),
    5: (1.0, 0.693151414394378662109375, 0.24016360938549041748046875, 0.055802188813686370849609375,
        0.00901452265679836273193359375, 0.00186810153536498546600341796875),
}  # fmt: skip
"""FlashAttention-4's coefficients by degree, constant first; f32 numbers."""

MINIMAX = {
    degree: tuple(float.fromhex(c) for c in coefficients.split())
    for degree, coefficients in {
        1: "0x1.f0bb46p-1 0x1.f0bb46p-1",
        2: "0x1.007108p+0 0x1.50b5b4p-1 0x1.594830p-2",
        3: "0x1.fff632p-1 0x1.64444cp-1 0x1.cefc4cp-3 0x1.3f96a4p-4",
        4: "0x1.00002cp+0 0x1.62d166p-1 0x1.ee798ap-3 0x1.aa13f0p-5 0x1.bb7cd4p-7",
        5: "0x1.fffffep-1 0x1.62e4f6p-1 0x1.ebd5a8p-3 0x1.c95446p-5 0x1.26900cp-7 0x1.ec320ap-10",
    }.items()
}
"""The coefficients of least relative error by degree, constant first, rounded to f32."""


@dataclass(frozen=True)
class PolyExp2Options(FloatOptions):
    """The polynomial."""

    degree: int = option(3, "degree of the polynomial", low=1, high=5)
    coefficients: Literal["published", "minimax"] = option(
        "published", "FlashAttention-4's, which are 1 at 0, or those of least error"
    )


def _trace(t: Trace, options: PolyExp2Options) -> Outputs:
    table = PUBLISHED if options.coefficients == "published" else MINIMAX
    d = distance(t)
    octaves, below, rest = split_octaves(t, d)  # below is -floor(y)
    value = horner(t, rest, table[options.degree])
    weights = t.select(octaves <= OCTAVES, value * t.exp2i(t.cast(0.0 - below, DType.I32)), 0.0)
    return d.pair(in_type(t, "exponential", weights))


METHOD = Method(
    name="poly-exp2",
    summary="Exponentials by a polynomial of degree 1 to 5 within an octave, as FlashAttention-4 emulates them.",
    source="FlashAttention-4, arXiv 2603.05451",
    options=PolyExp2Options,
    trace=_trace,
    drop_in=True,
)
