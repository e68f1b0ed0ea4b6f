"""Each score's sigmoid by itself: p = 1 / (1 + e^-(x + b)), by default with b = -ln n.

Source: Ramapuram et al., Theory, Analysis, and Best Practices for Sigmoid Self-Attention, arXiv 2409.04431, equation 3
and b = -log n (apple/ml-sigmoid-attention@9273b49, whose kernel has b = 0 by default: bias=0). n is the number of
elements that take part. e^-|z| with z = x + b is computed, of which the sigmoid is 1 or e^-|z| over 1 + e^-|z|; with
b = -ln n, e^-z is n * e^-x only in real numbers, so that ln n is computed, log2(n) * ln 2. The row's sum is not 1. With
bias=NUMBER a fully masked row is a row of zeros and not undefined, and with bias=row, where n is the row's length,
masked elements included.
Input: any f32; -inf is masked, +inf takes all the weight.
8-bit integer scores: x = step * (score - zero), a table of 256 weights of W bits, 2^W for 1. With b = -ln n it is
a / (a + n a') with a = sigmoid(x), a' = sigmoid(-x) of W bits and a division per element in 64 bits, 2^24 for 1.
Integers: for float scores none. Accumulator: none but the count, f32, exact up to 2^24. Weights p, normalizer 1.
Error: (1e-6 + 2^-24 * |z|) * p, where p > 3e-38.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, scores, step_option, units, weight_bits_option, zero_option
from softq.methods._written import Function, WrittenSettings, plain
from softq.rowprog import DType, Trace
from softq.rowprog.library import exp_minus

_RESULT_BITS = 24


@dataclass(frozen=True)
class SigmoidOptions(FloatOptions):
    """What is added to the scores."""

    unnamed = FLOATS

    bias: float | Literal["length", "row"] = option(
        "length", "what is added to the scores; length: -ln n, n the number of elements that take part; row: of "
        "all",
        low=-100.0, high=100.0,
    )  # fmt: skip
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _trace(t: Trace, options: SigmoidOptions) -> Outputs:
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x, one = scores(t), t.const(1.0, DType.F32)
    if isinstance(options.bias, float):
        z = x.row + t.const(options.bias, DType.F32)
    else:
        count = x.count if options.bias == "length" else t.cast(t.length(), DType.F32)
        z = x.row - t.log2(t.max(count, 1.0)) * t.const(math.log(2), DType.F32)
    e = exp_minus(t, t.select(z < 0.0, 0.0 - z, z))
    return x.pair(t.divide(t.select(z < 0.0, e, one), e + 1.0), one, always=options.bias != "length")


def _trace_integer(t: Trace, options: SigmoidOptions) -> Outputs:
    x = units(t, options.step, options.zero, options.weight_bits)
    if isinstance(options.bias, float):
        bias, one = options.bias, 2**x.bits
        return {"weights": x.look_up(lambda v: _sigmoid(v + bias), one), "normalizer": t.const(one, DType.U32)}
    # e^x / (e^x + n) = a / (a + n b) with a = sigmoid(x), b = sigmoid(-x), both of W bits.
    a, b = (t.cast(x.look_up(lambda v, s=s: _sigmoid(s * v), 2**x.bits), DType.I64) for s in (1, -1))
    length = options.bias == "row"
    count = t.cast(t.length(), DType.I64) if length else t.cast(x.count(), DType.I64)
    below = t.max(a + b * count, 1)
    weights = t.cast(t.min(t.divide((a << _RESULT_BITS) + (below >> 1), below), 2**_RESULT_BITS), DType.U32)
    one = t.const(2**_RESULT_BITS, DType.U32)
    return {"weights": weights, "normalizer": one if length else x.where_any(one)}


def _sigmoid(z: float) -> float:
    e = math.exp(-abs(z))
    return (e if z < 0 else 1.0) / (1.0 + e)


def _written(f: Function) -> Iterable[WrittenSettings]:
    p = f.of()[0, 0]
    if 0 < p < 1:
        yield {"bias": plain(math.log(p / (1 - p)))}
        yield {"bias": "row"}
        yield {"bias": "length"}


METHOD = Method(
    name="sigmoid",
    summary="Each score's sigmoid, less the logarithm of the row's length, for models trained with it.",
    source="Sigmoid attention, Ramapuram et al., arXiv 2409.04431",
    options=SigmoidOptions,
    trace=_trace,
    integer_scores=True,
    written=_written,
)
