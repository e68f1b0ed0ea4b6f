"""Exponentials with learned constants in the maximum's and the sum's place: p = e^(x - beta) / gamma.

Source: Liu et al., ConSmax, ICCAD 2024, arXiv 2402.10930, equation 2; beta and gamma are learned there, one a head
(ReaLLMASIC/ReaLLM-Forge@42dfe7f: beta begins at 2.0 or 2.5, gamma at 100). Neither maximum nor sum is needed, so that
an element's weight depends on its score alone and the row's sum is not 1. x - beta ends at `clamp`, as in its code,
below where f32 overflows.
Input: any f32; -inf is masked, +inf takes all the weight; a finite score of -5000 or less weighs 0 anyway.
Integers: none. Accumulator: none. Weights e^(x - beta), up to e^80, normalizer gamma.
e^z is e^-|z|, or one divided by it for z > 0.
Error: (3e-7 + 2^-24 * (|x| + |beta|)) * p, where p > 3e-38 / gamma.
Calibration: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softq.methods._contract import Method, Options, OptionValue, option
from softq.methods._unnormalized import scores
from softq.rowprog import DType, Trace, Value
from softq.rowprog.library import exp_minus


@dataclass(frozen=True)
class ConsmaxOptions(Options):
    """The learned constants."""

    beta: OptionValue = option(2.5, "what is taken off the scores, in the maximum's place", low=-100.0, high=100.0)
    gamma: OptionValue = option(
        100.0, "what the exponentials are divided by, in the sum's place", low=2.0**-20, high=2.0**20
    )
    clamp: OptionValue = option(80.0, "where x - beta ends", low=0.0, high=86.0)


def _trace(t: Trace, options: Options) -> Mapping[str, Value]:
    assert isinstance(options, ConsmaxOptions)
    x, one = scores(t), t.const(1.0, DType.F32)
    z = t.min(x.row - t.const(float(options.beta), DType.F32), t.const(float(options.clamp), DType.F32))
    e = exp_minus(t, t.select(z < 0.0, 0.0 - z, z))
    return x.pair(t.select(z < 0.0, e, t.divide(one, e)), t.const(float(options.gamma), DType.F32))


METHOD = Method(
    name="consmax",
    summary="Exponentials less a constant, over a constant, for models trained with it.",
    source="ConSmax, Liu et al., ICCAD 2024, arXiv 2402.10930",
    options=ConsmaxOptions,
    trace=_trace,
    integer_scores=False,
    drop_in=False,
    calibration="none",
    contract=False,
    normalized=False,
    shift_free=False,
)
