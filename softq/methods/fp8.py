"""Weights in an 8-bit floating-point format, E4M3 or E5M2, with one scale.

    e_j = exp(x_j - max),  w_j = R(T e_j),  output = sum(w_j V_j) / sum(w_j)

R rounds to the nearest number of the format, half to even, and saturates (`softq.rowprog.formats`). T = top * G, G the
greatest number of the format, 448 or 57,344: with top = 1 the maximum has the greatest code, and the scale by which a
product is multiplied back is 1 / G. Above, the greatest weights saturate; it is the grid that moves, by less than a
power of two, and a fit may find a better place for it. With sum = exact, products are divided by T sum(e_j).

Source: OFP8, Open Compute Project, 8-bit Floating Point Specification, version 1.0, sections 5.1 and 5.2 for the
formats and their saturating conversion. Exponentials instead of probabilities: FlashAttention-3, arXiv 2407.08608,
section 3.3, and SageAttention2, arXiv 2411.10958, which code them with T = 448, the second with a scale for each
column of V (values = coded). of = probabilities is what a pair of
quantize and dequantize nodes behind the softmax does.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, the sum in [T / 2, N G].
Error: each weight within 2^-4 of T e (E4M3; E5M2 2^-3), relatively, from 2^-6 (2^-14) on, and within 2^-10 (2^-17)
below: at top = 1 that is from e = 3.5e-5 (1.1e-9) on.
Calibration: optional; `top` is fitted on the squared error of P V, per site or per head, and so is `sum`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from softq.methods import Auto, Method, Outputs, Scope, option
from softq.methods._coded import SUMS, CodedOptions, choose_sum, coded, of_column
from softq.methods._fitted import Given, fit_if_calibrated, per_head, take
from softq.rowprog import Trace, Value
from softq.rowprog.formats import FORMATS
from softq.rowprog.rounding import round_to

_LEAST, _GREATEST = 0.125, 4.0


@dataclass(frozen=True)
class Fp8Options(CodedOptions):
    """The format and its scale."""

    format: Literal["e4m3", "e5m2"] = option("e4m3", "the format of weights")
    top: float | Auto | Scope = option(
        1.0, "what a weight of 1 is, as a share of the format's greatest number, or fitted per site or head; auto: per "
        "site where there are calibration data, else 1", low=_LEAST, high=_GREATEST,
    )  # fmt: skip


def _constants(options: Fp8Options, fitted: Mapping[str, float]) -> dict[str, float]:
    return {"one": float(fitted.get("top", options.top)) * FORMATS[options.format].greatest}


def _trace(t: Trace, options: Fp8Options) -> Outputs:
    greatest = FORMATS[options.format].greatest
    given = Given("one", _LEAST * greatest, _GREATEST * greatest, "what a weight of 1 is before it is rounded")
    (one,) = take(t, options, "top", _constants, given)
    return coded(t, options, lambda values: round_to(t, values * one, options.format, signed=False), one)


def _values(t: Trace, options: Fp8Options) -> Value | None:
    if options.values == "f32":
        return None
    scale, column = of_column(t, t.scores, FORMATS[options.format].greatest)
    return round_to(t, column, options.format) * scale


def _candidates(options: Fp8Options, name: str) -> Sequence[float]:
    """Return shares over a power of two, from one in which nothing saturates to one in which the greatest do."""
    return [2.0 ** (step / 16) for step in range(-16, 9)]


METHOD = Method(
    name="fp8",
    summary="Exponentials in E4M3 or E5M2, the division behind the product with V.",
    source="OFP8 1.0; FlashAttention-3, arXiv 2407.08608",
    options=Fp8Options,
    trace=_trace,
    drop_in=True,
    calibration="optional: fits the scale, and which sum products are divided by, per site or per head",
    resolve=fit_if_calibrated(top=lambda options: 1.0),
    parameters=per_head(top=_constants, sum=choose_sum),
    candidates=_candidates,
    choices=(SUMS,),
    values=_values,
)
