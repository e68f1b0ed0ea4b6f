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
over the elements.
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

import numpy as np
from numpy.typing import NDArray

from softq.errors import UsageError
from softq.methods._contract import FITTED_SCOPES, Fitted, Method, Options, OptionValue, option
from softq.methods.deferred_log import METHOD as SEVERAL_PASSES
from softq.methods.deferred_log import DeferredLogOptions, rates_to_try, weight_table
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import F32_MAX, LOG2_E

_FRACTION = 14
_MOST_RISES, _GREATEST_SUM = 2**30, 2**48
_LEAST_R, _GREATEST_R = 0.125, 64.0
_OCTAVES = _FRACTION + 1
"""So far down a weight of 2^14 is one half, which is rounded to 0."""


@dataclass(frozen=True)
class DeferredLogOnlineOptions(Options):
    """Width of the codes, and codes an octave."""

    bits: OptionValue = option(4, "bits of a code", low=2, high=8)
    r: OptionValue = option(
        "auto", "codes an octave (factor of 2 of the weight), or fit one a site or head; auto: 1 at 4 bits, doubled by "
        "each further bit, 0.75 at 3 bits and 0.5 at 2", low=_LEAST_R, high=_GREATEST_R, words=("auto", *FITTED_SCOPES),
    )  # fmt: skip


def _several_passes(options: Options) -> DeferredLogOptions:
    assert isinstance(options, DeferredLogOnlineOptions)
    return DeferredLogOptions(bits=options.bits, steps="equal", r=options.r)


def _resolve(options: Options, calibrated: bool) -> Options:
    assert isinstance(options, DeferredLogOnlineOptions)
    alone = SEVERAL_PASSES.resolve(_several_passes(options), False)
    assert isinstance(alone, DeferredLogOptions)
    return replace(options, r=alone.r)


def _last_rise(r: OptionValue) -> int:
    """Return the least rise whose factor is 0 for each r that the program is for."""
    return math.ceil(_OCTAVES * (_GREATEST_R if r in FITTED_SCOPES else float(r)))


def tables(options: Options, r: float) -> list[int]:
    """Return w for all codes, and behind it f for all rises."""
    assert isinstance(options, DeferredLogOnlineOptions)
    factors = [round(2.0 ** (_FRACTION - k / r)) for k in range(_last_rise(options.r) + 1)]
    return weight_table(_several_passes(options), r) + factors


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, DeferredLogOnlineOptions)
    if options.r == "auto":
        raise UsageError("deferred-log-online: r is auto; resolve() the options first")
    top, last = 2 ** int(options.bits) - 1, _last_rise(options.r)
    if options.r in FITTED_SCOPES:
        scope, size = options.fitted["r"], top + last + 2
        rate = t.param("rate", scope, DType.F32, _LEAST_R, _GREATEST_R * 2, "r * log2(e): codes a unit of distance")
        table = t.param(
            "weights", scope, DType.U32, 0, 2**_FRACTION, "weight of each code, then factor of each rise", size
        )
    else:
        rate = t.const(float(options.r) * LOG2_E, DType.F32)
        table = t.table(tables(options, float(options.r)), DType.U32)
    a_code = t.divide(1.0, rate)
    x = t.scores if t.valid is None else t.select(t.valid, t.scores, -math.inf)
    is_nan = t.any(~x.eq(x))

    def codes_in(difference: Value, most: int) -> Value:
        # A NaN (between two scores of +inf, or in an undefined row) becomes 0.
        return t.clamp(t.rint(difference * rate), 0.0, float(most))

    def weight(codes: Value) -> Value:
        return t.cast(t.lut(table, codes), DType.I64)

    def rescaled(value: Value, factor: Value) -> Value:
        return (value * factor + 2 ** (_FRACTION - 1)) >> _FRACTION

    def factor_of(rise: Value) -> Value:
        return weight(rise + (top + 1))

    def step(reference: Value, risen: Value, total: Value, score: Value) -> tuple[list[Value], list[Value]]:
        rise = codes_in(score - reference, last)
        whole = t.cast(rise, DType.I32)
        factor = factor_of(whole)
        after = t.select(factor > 0, reference + rise * a_code, t.max(score, -F32_MAX))
        codes = t.cast(codes_in(after - score, top), DType.I32)
        total = t.min(rescaled(total, factor) + weight(codes), _GREATEST_SUM)
        risen = t.min(risen + whole, _MOST_RISES)
        return [after, risen, total], [codes, risen]

    start = [t.const(-F32_MAX, DType.F32), t.const(0, DType.I32), t.const(0, DType.I64)]
    kept = [(-F32_MAX, math.inf), (0, _MOST_RISES), (0, _GREATEST_SUM)]
    (_, risen, total), (codes, risen_then) = t.scan(start, [x], step, kept)
    weights = rescaled(weight(codes), factor_of(t.clamp(risen - risen_then, 0, last)))
    normalizer = t.select(is_nan, math.nan, t.cast(total, DType.F32))
    return {"weights": t.cast(weights, DType.U32), "normalizer": normalizer, "codes": t.cast(codes, DType.U8)}


def _parameters(options: Options, fitted: Fitted) -> Mapping[str, NDArray[np.generic]]:
    if "r" not in fitted:
        return {}
    r = np.atleast_1d(np.asarray(fitted["r"], dtype=np.float64))
    rate = (r * LOG2_E).astype(np.float32)
    weights = np.array([tables(options, float(value)) for value in r], dtype=np.uint32)
    if options.fitted["r"] == "site":
        return {"rate": rate, "weights": weights[0]}
    return {"rate": rate.reshape(-1, 1, 1), "weights": weights.reshape(len(r), 1, -1)}


def _candidates(options: Options, name: str) -> Sequence[float]:
    return rates_to_try(_several_passes(options))


METHOD = Method(
    name="deferred-log-online",
    summary="deferred-log's codes against a running maximum, in one pass; for streams, slow where rows are kept.",
    source="softq, in the recurrence of the online softmax (Milakov and Gimelshein, arXiv 1805.02867)",
    options=DeferredLogOnlineOptions,
    trace=_trace,
    integer_scores=False,
    drop_in=True,
    calibration="optional: r=site or r=head fits the codes an octave on the error of P V",
    contract=False,
    resolve=_resolve,
    parameters=_parameters,
    candidates=_candidates,
    order_free=False,
)
