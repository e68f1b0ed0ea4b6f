"""Powers of a fitted base of the probabilities: c = rint(-log2(p) * 37 / q), p' = 2^(-c q / 37) by mantissa and shift.

Source: AdaLog (Wu et al., ECCV 2024, arXiv 2407.12951; GoatWu/AdaLog@75a57d2), the adaptive logarithm quantizer for the
output of the softmax: base 2^(q / r) with r = 37 and an integer q, scale 1; q = 37 is `log2`. The decoded value is

    p' = T2[c] / D * 2^-T1[c],   D = 2^(b+1) - 2,
    T1[c] = floor(c q / 37),     T2[c] = rint(D * 2^(-((c q) mod 37) / 37)),

a mantissa of b + 1 bits in (D / 2, D] and a shift. Two things differ from the authors' code. There a p below 1e-15
counts as 1e-15, so that with many bits a masked element keeps a weight; here it has the code of zero. And there the
codes run to 2^b - 1 with zero beyond them; by default the greatest code of b bits is zero here (zero=beyond is theirs).
Input: any f32; -inf is masked, +inf takes all the weight. p is the exact softmax.
Integers: code c of b bits; weights T2 * 2^-T1, exact in f32 (0 from T1 = 118 on, where p is far below any code that
counts), and their normalizer D, so that 1 / D is applied behind the product with V.
Accumulator: none in the program. Of integers, T2 shifted left by max(T1) - T1 times int8 V needs
(b + 1) + 8 + max(T1) + log2(N) bits: 32 up to N = 128 for b = 4 and q = 30.
Error: p' / p is within a factor of 2^(+-q / 74) * (1 +- 1 / D) above the last code, 0 below. The row's sum is not 1.
Calibration: optional; q from 10 to 137, and from lower for more than 5 bits, where the optimum was found at 10, by the
squared error of the attention output P V, per site or per head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softq.methods import Auto, Method, Outputs, Scope, option
from softq.methods._fitted import Given, fit_if_calibrated, per_head, take
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import Zero, levels, minus_log2, softmax, to_codes, zero_option
from softq.rowprog import DType, Trace

_PARTS = 37
"""The number r of the paper: q counts parts of an octave."""

_GREATEST_Q = 137
_LAST_SHIFT = 118  # the mantissa's 9 bits stay above the least normal f32, 2^-126


@dataclass(frozen=True)
class AdalogOptions(FloatOptions):
    """Width of the codes and their base."""

    bits: int = option(4, "bits of a code", low=2, high=8)
    q: float | Auto | Scope = option(
        "auto", "the base is 2^(q / 37), or fit q per site or head; auto: fitted per site where there are calibration "
        "data, else 37 at 4 bits, halved by each further bit, 49 at 3 bits and 74 at 2",
        low=1.0, high=float(_GREATEST_Q),
    )  # fmt: skip
    zero: Zero = zero_option()


def _usual_q(options: AdalogOptions) -> float:
    """Return q without calibration data: the codes of deferred-log, a range of 15 octaves from 4 bits on."""
    return {2: 74.0, 3: 49.0}.get(options.bits, _PARTS * 2.0 ** (4 - options.bits))


def _mantissa(options: AdalogOptions) -> int:
    return 2 ** (options.bits + 1) - 2


def weight_table(options: AdalogOptions, q: float) -> list[float]:
    """Return T2 * 2^-T1 for all codes, and 0 for that of zero."""
    table: list[float] = []
    for c in range(levels(options.bits, options.zero)):
        shift, part = divmod(c * q, _PARTS)
        mantissa = round(_mantissa(options) * 2.0 ** (-part / _PARTS))
        table.append(mantissa * 2.0**-shift if shift < _LAST_SHIFT else 0.0)
    return [*table, 0.0]


def _constants(options: AdalogOptions, fitted: Mapping[str, float]) -> dict[str, float | Sequence[float]]:
    q = float(fitted.get("q", options.q))
    return {"rate": _PARTS / q, "weights": weight_table(options, q)}


def _trace(t: Trace, options: AdalogOptions) -> Outputs:
    top, one = levels(options.bits, options.zero), float(_mantissa(options))
    rate, table = take(
        t, options, "q", _constants,
        Given("rate", _PARTS / _GREATEST_Q, _PARTS, "37 / q: codes an octave"),
        Given("weights", 0.0, one, "weight of each code", size=top + 1),
    )  # fmt: skip
    p = softmax(t)
    codes = to_codes(t, minus_log2(t, p, rate=rate), top)
    return {"weights": t.lut(table, codes), "normalizer": p.normalizer(t, t.const(one, DType.F32)), "codes": codes}


def _candidates(options: AdalogOptions, name: str) -> Sequence[float]:
    # The paper's 10 to 137; with more than 5 bits down to where the codes still reach some 7 octaves.
    least = 10 if options.bits <= 5 else 2 ** (8 - options.bits)
    return [float(q) for q in range(least, _GREATEST_Q + 1)]


METHOD = Method(
    name="adalog",
    summary="Exact softmax, then the nearest power of a fitted base, decoded by a small mantissa and a shift.",
    source="AdaLog, Wu et al., ECCV 2024, arXiv 2407.12951; the zero code is softq's",
    options=AdalogOptions,
    trace=_trace,
    drop_in=True,
    calibration="optional: fits q, the logarithm of the base, per site (with q=head per head) on the error of P V",
    resolve=fit_if_calibrated(q=_usual_q),
    parameters=per_head(q=_constants),
    candidates=_candidates,
)
