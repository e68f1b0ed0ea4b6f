"""The codes of deferred-log against a running maximum: one pass, what was summed before is rescaled when it rises.

    k = max(rint((x - ref) * r * log2 e), 0)                        by how many codes the reference rises
    ref = ref + k / (r * log2 e); x itself where f[k] = 0
    c = min(max(rint((ref - x) * r * log2 e), 0), 2^b - 1)           the code of the element
    S = rint(S * f[k] / 2^14) + w[c]
    f[k] = rint(2^14 * 2^(-k / r)),   w[c] = f[c], and 0 for the greatest code

A sum of w[c_j] V_j is rescaled as S is; output = that sum / S. The row of weights that this program gives is what each
element has left at the end: rint(w[c_j] * f[K_j] / 2^14), with K_j the sum of the rises behind it.

The reference moves by whole codes only, so that the factor of a rise is an entry of a table, a shift for r = 1, and no
exponential; and rounding does not add up over many small rises, because what one leaves is seen by the next. It stays
within half a code of the running maximum.

Source: softq's deferred-log in the recurrence of the online softmax (Milakov and Gimelshein, arXiv 1805.02867). For
streams of scores that are never kept: a core that takes one element a clock, or attention in one pass over the keys.
The codes differ from deferred-log's, and depend on the order of the elements; a later element with the greatest code
may weigh less than a smaller one that came early. The form in several passes is deferred-log with equal steps: it gives
the same integers where the maximum comes first. Where scores are kept, take that one: for this one onnxruntime loops
over the elements. For 8-bit integer scores there is deferred-log-octaves, whose loops have no products.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: code c, b bits; w and f unsigned, scaled by 2^14. Rises in all, at most 2^30, i32. S in i64, at most 2^48,
which fewer than 2^34 elements do not reach, so that its product with f stays below 2^62; a core needs 15 + log2(N) bits
for S.
Error: that of deferred-log, and half a code more for what was summed before the last rise. What was above zero when it
was summed stays until it is rounded away. The weights add up to S but for rounding, at most half a unit of 2^-14 of the
greatest weight for each element and each rise.
Calibration: optional; r=site or r=head fits r on the squared error of the attention output P V, as for deferred-log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from softq.methods import FITTED_SCOPES, Auto, Method, Options, Outputs, Scope, option
from softq.methods._fitted import Given, check_resolved, per_head, take
from softq.methods._steps import GREATEST_R, LEAST_R, StepOptions, doubt_reach, equal_steps, resolve_steps
from softq.methods._steps_fit import rates_to_try
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import F32_MAX, LOG2_E, mask_scores

_FRACTION = 14
_MOST_RISES, _GREATEST_SUM = 2**30, 2**48
_OCTAVES = _FRACTION + 1
"""So far down a weight of 2^14 is one half, which is rounded to 0."""


@dataclass(frozen=True)
class DeferredLogOnlineOptions(Options):
    """Width of the codes, and codes per octave."""

    bits: int = option(4, "bits of a code", low=2, high=8)
    r: float | Auto | Scope = option(
        "auto", "codes per octave (factor of 2 of the weight), or fit one per site or head; auto: 1 at 4 bits, doubled "
        "by each further bit, 0.75 at 3 bits and 0.5 at 2", low=LEAST_R, high=GREATEST_R,
    )  # fmt: skip

    @property
    def several_passes(self) -> StepOptions:
        """The same for `deferred-log`."""
        return StepOptions(bits=self.bits, steps="equal", r=self.r)


def _resolve(options: DeferredLogOnlineOptions, calibrated: bool) -> DeferredLogOnlineOptions:
    return replace(options, r=resolve_steps(options.several_passes, False).r)


def _doubt(options: DeferredLogOnlineOptions) -> str:
    doubt = doubt_reach(options.several_passes)
    return f"deferred-log-online: {doubt}" if doubt else ""


def _last_rise(r: float | Auto | Scope) -> int:
    """Return the least rise whose factor is 0 for each r that the program is for."""
    return math.ceil(_OCTAVES * (GREATEST_R if r in FITTED_SCOPES else float(r)))


def _constants(options: DeferredLogOnlineOptions, fitted: Mapping[str, float]) -> dict[str, float | Sequence[float]]:
    """Return the rate, and w for all codes with f for all rises behind it."""
    r = float(fitted.get("r", options.r))
    factors = [round(2.0 ** (_FRACTION - k / r)) for k in range(_last_rise(options.r) + 1)]
    weights = equal_steps(2**options.bits - 1, r).to_integers(2**_FRACTION)
    return {"rate": r * LOG2_E, "weights": weights + factors}


def _trace(t: Trace, options: DeferredLogOnlineOptions) -> Outputs:
    check_resolved(t, options, "r")
    top, last = 2**options.bits - 1, _last_rise(options.r)
    meaning = "weight of each code, then factor of each rise"
    rate, table = take(
        t, options, "r", _constants,
        Given("rate", LEAST_R, GREATEST_R * 2, "r * log2(e): codes a unit of distance"),
        Given("weights", 0, 2**_FRACTION, meaning, DType.U32, top + last + 2),
    )  # fmt: skip
    a_code = t.divide(1.0, rate)
    x, is_nan = mask_scores(t)

    def codes_in(difference: Value, most: int) -> Value:
        # A NaN (between two scores of +inf, or in an undefined row) becomes 0.
        return t.clamp(t.rint(difference * rate), 0.0, float(most))

    def weight(codes: Value) -> Value:
        return t.cast(t.lut(table, codes), DType.I64)

    def rescale(value: Value, factor: Value) -> Value:
        return (value * factor + 2 ** (_FRACTION - 1)) >> _FRACTION

    def factor_of(rise: Value) -> Value:
        return weight(rise + (top + 1))

    def step(reference: Value, risen: Value, total: Value, score: Value) -> tuple[list[Value], list[Value]]:
        rise = codes_in(score - reference, last)
        whole = t.cast(rise, DType.I32)
        factor = factor_of(whole)
        after = t.select(factor > 0, reference + rise * a_code, t.max(score, -F32_MAX))
        codes = t.cast(codes_in(after - score, top), DType.I32)
        total = t.min(rescale(total, factor) + weight(codes), _GREATEST_SUM)
        risen = t.min(risen + whole, _MOST_RISES)
        return [after, risen, total], [codes, risen]

    start = [t.const(-F32_MAX, DType.F32), t.const(0, DType.I32), t.const(0, DType.I64)]
    kept = [(-F32_MAX, math.inf), (0, _MOST_RISES), (0, _GREATEST_SUM)]
    (_, risen, total), (codes, risen_then) = t.scan(start, [x], step, kept)
    weights = rescale(weight(codes), factor_of(t.clamp(risen - risen_then, 0, last)))
    normalizer = t.select(is_nan, math.nan, t.cast(total, DType.F32))
    return {"weights": t.cast(weights, DType.U32), "normalizer": normalizer, "codes": t.cast(codes, DType.U8)}


METHOD = Method(
    name="deferred-log-online",
    summary="deferred-log's codes against a running maximum, in one pass; for streams, slow where rows are kept.",
    source="softq, in the recurrence of the online softmax (Milakov and Gimelshein, arXiv 1805.02867)",
    options=DeferredLogOnlineOptions,
    trace=_trace,
    drop_in=True,
    calibration="optional: r=site or r=head fits the codes per octave on the error of P V",
    resolve=_resolve,
    doubt=_doubt,
    parameters=per_head(r=_constants),
    candidates=lambda options, name: rates_to_try(options.several_passes),
)
