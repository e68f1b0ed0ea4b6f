"""Exponentials with learned constants in the maximum's and the sum's place: p = e^(x - beta) / gamma.

Source: Liu et al., ConSmax, ICCAD 2024, arXiv 2402.10930, equation 2; beta and gamma are learned there, per head
(ReaLLMASIC/ReaLLM-Forge@42dfe7f: beta begins at 2.0 or 2.5, gamma at 100). Neither maximum nor sum is needed, so that
an element's weight depends on its score alone and the row's sum is not 1. x - beta ends at `clamp`, as in its code,
below where f32 overflows. Of a graph that holds the function, one beta and one gamma per head are taken.
Input: any f32; -inf is masked, +inf takes all the weight; a finite score of -5000 or less weighs 0 anyway.
8-bit integer scores: x = step * (score - zero), a table of 256 probabilities of W bits, 2^F for 1.
Integers: for float scores none. Accumulator: none. Weights e^(x - beta), up to e^80, normalizer gamma.
e^z is e^-|z|, or one divided by it for z > 0.
Error: (3e-7 + 2^-24 * (|x| + |beta|)) * p, where p > 3e-38 / gamma.
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from softq.errors import UsageError
from softq.methods import Method, Outputs, Scope, option
from softq.methods._fitted import itself, per_head, take_learned
from softq.methods._roundings import FloatOptions
from softq.methods._unnormalized import FLOATS, scores, step_option, units, weight_bits_option, zero_option
from softq.methods._written import Function, WrittenSettings, collapse, plain
from softq.rowprog import DType, Trace
from softq.rowprog.library import exact_exp_minus, in_type

_MOST = 86.0
"""Where x - beta ends at the latest."""

_MOST_FRACTION = 31


@dataclass(frozen=True)
class ConsmaxOptions(FloatOptions):
    """The learned constants."""

    unnamed = FLOATS

    beta: float | Scope = option(2.5, "what is taken off the scores, in the maximum's place", low=-100.0, high=100.0)
    gamma: float | Scope = option(
        100.0, "what the exponentials are divided by, in the sum's place", low=2.0**-20, high=2.0**20
    )
    clamp: float = option(80.0, "where x - beta ends", low=0.0, high=_MOST)
    step: float = step_option()
    zero: int = zero_option()
    weight_bits: int = weight_bits_option()


def _trace(t: Trace, options: ConsmaxOptions) -> Outputs:
    if not t.scores.dtype.is_float:
        return _trace_integer(t, options)
    x, one = scores(t), t.const(1.0, DType.F32)
    beta, gamma = take_learned(t, options, "beta"), take_learned(t, options, "gamma")
    difference = in_type(t, "difference", x.row - beta, signed=True)
    z = t.min(difference, t.const(options.clamp, DType.F32))
    e = exact_exp_minus(t, t.select(z < 0.0, 0.0 - z, z))
    return x.pair(in_type(t, "exponential", t.select(z < 0.0, e, t.divide(one, e))), gamma)


def _trace_integer(t: Trace, options: ConsmaxOptions) -> Outputs:
    if options.fitted:
        raise UsageError(f"consmax of {t.scores.dtype.value} scores: {', '.join(options.fitted)} has to be a number")
    x = units(t, options.step, options.zero, options.weight_bits)
    beta, gamma, clamp = (float(value) for value in (options.beta, options.gamma, options.clamp))
    weights, one = x.weigh(lambda score: math.exp(min(score - beta, clamp)) / gamma, _MOST_FRACTION)
    return {"weights": weights, "normalizer": x.where_any(t.const(one, DType.U32))}


def _written(f: Function) -> Iterable[WrittenSettings]:
    log_zero = np.log(f.of()[:, 0])
    greatest = float(f.of(4000.0)[0, 0])
    clamp = math.log(greatest) if 0 < greatest < 2.0**127 else None  # there may be none that f32 holds
    # e^(x - beta) / gamma tells only beta + ln(gamma); the graph's own constants tell the two apart.
    for gamma in f.numbers:
        beta = -log_zero - np.log(gamma)
        if any(np.allclose(beta, known, rtol=1e-6, atol=1e-6) for known in f.numbers):
            at_most = clamp + math.log(gamma[0]) if clamp is not None else _MOST
            gammas = np.broadcast_to(gamma, beta.shape)
            yield {"beta": collapse(beta), "gamma": collapse(gammas), "clamp": plain(at_most)}
    at_most = _MOST if clamp is None else clamp
    yield {"beta": 0.0, "gamma": collapse(np.exp(-log_zero)), "clamp": min(plain(at_most - log_zero[0]), _MOST)}
    yield {"beta": collapse(-log_zero), "gamma": 1.0, "clamp": min(plain(at_most), _MOST)}


METHOD = Method(
    name="consmax",
    summary="Exponentials less a constant, over a constant, for models trained with it.",
    source="ConSmax, Liu et al., ICCAD 2024, arXiv 2402.10930",
    options=ConsmaxOptions,
    trace=_trace,
    integer_scores=True,
    parameters=per_head(beta=itself("beta"), gamma=itself("gamma")),
    written=_written,
)
