"""Small unsigned floating-point numbers of the probabilities: E bits of exponent, M of mantissa, a fitted range.

With z = p * (2 - 2^-M) / top and the exponent l = max(floor(log2 z), 2 - 2^E), at most 0,

    p' = top / (2 - 2^-M) * 2^(l - M) * rint(z / 2^(l - M)),   z at most 2 - 2^-M:

2^E - 1 binades of 2^M equal steps each, the lowest continued down to 0 (subnormal numbers), ties to even, no infinities
and no NaN.
Source: LLM-FP4 (Liu et al., EMNLP 2023, arXiv 2310.16836; nbasyl/LLM-FP4@0598c95) for the format and the search. Its
numbers have a sign, which a probability does not need: here that bit goes to the exponent or the mantissa. Its real
exponent bias beta is `top` in another form: beta = 2^E - 1 + log2((2 - 2^-M) / top). M = 0 is a log2 code with 0,
its borders half-way between the numbers themselves.
Input: any f32; -inf is masked, +inf takes all the weight. p is the exact softmax. p above `top` saturates.
Integers: none; weights are the numbers themselves, on a scale where the highest binade is [1, 2): exact in f32, of
M + 1 significant bits, multiples of 2^(2 - 2^E - M). Normalizer (2 - 2^-M) / top, applied behind the product with V.
How: z + C - C rounds z to a multiple of ulp(C), with C = 2^(23 - M) * max(z, 2^(2 - 2^E)), whose ulp is 2^(l - M). C is
first rounded to 12 bits, which makes it an even multiple of that ulp, so that ties are to even; where that carries it
into the next binade, z is so near a power of two that it is rounded to it in either. No branch, no logarithm.
Accumulator: none in the program. As integers the numbers have 2^E - 2 + M + 1 bits.
Error: |p' - p| <= 2^-(M + 1) * p from top * 2^(2 - 2^E) / (2 - 2^-M) to top; below half a step of the lowest binade.
Calibration: optional; M and top together, on the squared error of the attention output P V, one pair per site or per
head: for each M with 1 to 6 bits of exponent, beta at 101 multiples, .01 to 1.2, of the one that makes the greatest
probability of the data the greatest number, except where that leaves the whole highest binade empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softq.errors import UsageError
from softq.methods import Auto, Error, Method, Outputs, Sample, Scope, option
from softq.methods._fitted import Given, check_resolved, fit_if_calibrated, per_head, take
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import softmax
from softq.rowprog import DType, Trace, Value

_LEAST_TOP, _GREATEST_TOP = 2.0**-12, 2.0
_EXPONENT_BITS = 6
"""The most: 64 binades; a probability of 2^-62 times the greatest is as good as zero."""

_SPLIT = 2.0**12 + 1  # Veltkamp's constant: leaves the upper 12 of 24 bits


@dataclass(frozen=True)
class MinifloatOptions(FloatOptions):
    """Width of the numbers, how it is divided, and the greatest one."""

    bits: int = option(4, "bits of a number", low=2, high=8)
    mantissa: float | Auto | Scope = option(
        "auto", "bits of the mantissa, bits - 6 to bits - 1, the others are the exponent's; or fit them per site or "
        "head; auto: fitted per site where there are calibration data, else bits - 3, at least 0",
        low=0.0, high=7.0,
    )  # fmt: skip
    top: float | Auto | Scope = option(
        "auto", "probability that the greatest number stands for, or fit one per site or head; auto: fitted per site "
        "where there are calibration data, else 1", low=_LEAST_TOP, high=_GREATEST_TOP,
    )  # fmt: skip


def _mantissas(bits: int) -> range:
    return range(max(bits - _EXPONENT_BITS, 0), bits)


def _format_of(bits: int, mantissa: int) -> dict[str, float]:
    """Return what the program needs to know of a format; each is a power of two but the greatest number."""
    least = 2.0 ** (2 - 2 ** (bits - mantissa))
    return {"magic": 2.0 ** (23 - mantissa), "least": least, "greatest": 2 - 2.0**-mantissa}


def _format(options: MinifloatOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    return _format_of(options.bits, int(fitted["mantissa"]) if "mantissa" in fitted else _whole(options))


def _inverse_top(options: MinifloatOptions, fitted: Mapping[str, float]) -> dict[str, float]:
    return {"inverse_top": 1 / float(fitted.get("top", options.top))}


def _trace(t: Trace, options: MinifloatOptions) -> Outputs:
    check_resolved(t, options, "mantissa", "top")
    formats = [_format_of(options.bits, m) for m in _mantissas(options.bits)]

    def given(name: str, meaning: str) -> Given:
        values = [f[name] for f in formats]
        return Given(name, min(values), max(values), meaning)

    magic, least, greatest = take(
        t, options, "mantissa", _format,
        given("magic", "2^(23 - mantissa bits)"),
        given("least", "the least number with all bits of its mantissa"),
        given("greatest", "the greatest number"),
    )  # fmt: skip
    wanted = Given("inverse_top", 1 / _GREATEST_TOP, 1 / _LEAST_TOP, "1 / top")
    (inverse,) = take(t, options, "top", _inverse_top, wanted)
    p, steps = softmax(t), greatest * inverse
    z = t.min(p.scale(t, steps), greatest)
    return {"weights": nearest(t, z, magic, least), "normalizer": p.normalizer(t, steps)}


def nearest(t: Trace, z: Value, magic: Value, least: Value) -> Value:
    """Return the nearest number of the format for z in [0, 2), ties to even; magic is 2^(23 - M), M at most 7."""
    base = t.max(z, least)
    wide = base * t.const(_SPLIT, DType.F32)
    offset = (wide - (wide - base)) * magic
    return (z + offset) - offset


def _whole(options: MinifloatOptions) -> int:
    mantissa, allowed = float(options.mantissa), _mantissas(options.bits)
    if mantissa not in allowed:
        raise UsageError(
            f"minifloat: mantissa is {mantissa:g} of {options.bits} bits; allowed is a whole number from "
            f"{allowed[0]} to {allowed[-1]}"
        )
    return int(mantissa)


def _fit(options: MinifloatOptions, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    greatest = max((_greatest(sample) for sample in samples), default=1.0)
    bits = options.bits
    mantissas = _mantissas(bits) if "mantissa" in options.fitted else [_whole(options)]
    tried: list[dict[str, float]] = []
    for mantissa in mantissas:
        tops = _tops(bits - mantissa, mantissa, greatest) if "top" in options.fitted else [float(options.top)]
        for top in tops:
            numbers = {"mantissa": float(mantissa), "top": top}
            tried.append({name: numbers[name] for name in options.fitted})
    return min(tried, key=error)


def _greatest(sample: Sample) -> float:
    scores = sample.scores.astype(np.float64)
    return float(1 / np.min(np.sum(np.exp(scores - scores.max(axis=-1, keepdims=True)), axis=-1)))


def _tops(exponent: int, mantissa: int, greatest: float) -> Iterator[float]:
    largest = 2 - 2.0**-mantissa
    start = 2**exponent - 1 + math.log2(largest / greatest)
    for multiple in np.linspace(0.01, 1.2, 101):
        top = largest * 2.0 ** (2**exponent - 1 - float(multiple) * start)
        if _LEAST_TOP <= top < min(2 * greatest, _GREATEST_TOP):
            yield top


METHOD = Method(
    name="minifloat",
    summary="Exact softmax, then the nearest unsigned floating-point number of a few bits.",
    source="LLM-FP4, Liu et al., EMNLP 2023, arXiv 2310.16836, without its sign",
    options=MinifloatOptions,
    trace=_trace,
    drop_in=True,
    calibration="optional: fits the bits of the mantissa and the range, per site (or per head), on the error of P V",
    resolve=fit_if_calibrated(mantissa=lambda options: max(options.bits - 3, 0), top=lambda options: 1.0),
    parameters=per_head(mantissa=_format, top=_inverse_top),
    fit=_fit,
)
