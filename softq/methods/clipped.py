"""The softmax stretched and clipped: p' = min(max((zeta - gamma) * p + gamma, 0), 1), p the exact softmax.

Source: Bondarenko et al., Quantizable Transformers, NeurIPS 2023, arXiv 2306.12929, equation 4; the defaults are those
of its scripts for BERT-base (Qualcomm-AI-research/outlier-free-transformers@1e59744). gamma < 0 gives exact zeros to
probabilities below -gamma / (zeta - gamma), zeta > 1 exact ones. The scripts for OPT take gamma = -12 / T, T the
greatest length. The row's sum is not 1; a masked element has p = 0 and stays 0. As a quantizer with equal steps it is
one with another zero point, and costs nothing there.
Input: any f32; -inf is masked, +inf takes all the weight.
Integers: none. Accumulator: f32, the sum of the exponentials, in [1, N]. Weights p', normalizer 1.
Error: |p' - exact| <= (zeta - gamma) * (2e-7 + N * 2^-24) * p + 2^-23 * max(1, -gamma).
Calibration: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from softq.methods import Method, Outputs, option
from softq.methods._roundings import FloatOptions
from softq.methods._softmax import softmax
from softq.methods._written import Function, WrittenSettings, plain
from softq.rowprog import DType, Trace


@dataclass(frozen=True)
class ClippedOptions(FloatOptions):
    """The interval that [0, 1] is stretched to before it is clipped."""

    gamma: float = option(-0.025, "where 0 goes before it is clipped", low=-1.0, high=0.0)
    zeta: float = option(1.0, "where 1 goes before it is clipped", low=1.0, high=2.0)


def _trace(t: Trace, options: ClippedOptions) -> Outputs:
    gamma, zeta = options.gamma, options.zeta
    p = softmax(t)
    stretched = p.scale(t, t.const(zeta - gamma, DType.F32)) + t.const(gamma, DType.F32)
    return {"weights": t.clamp(stretched, 0.0, 1.0), "normalizer": p.normalizer(t, t.const(1.0, DType.F32))}


def _written(f: Function) -> Iterable[WrittenSettings]:
    # Two elements that are not clipped give the line that they lie on.
    scores = (1.0, 0.5)
    p, q = (math.exp(x) / sum(map(math.exp, scores)) for x in scores)
    high, low, *_ = f.of(*scores, rest=-1000.0)[0]
    gamma = low - q * (high - low) / (p - q)
    yield {"gamma": min(plain(gamma), 0.0), "zeta": max(plain(gamma + (high - low) / (p - q)), 1.0)}


METHOD = Method(
    name="clipped",
    summary="The softmax stretched beyond [0, 1] and clipped, with exact zeros, for models trained with it.",
    source="Bondarenko et al., Quantizable Transformers, NeurIPS 2023, arXiv 2306.12929",
    options=ClippedOptions,
    trace=_trace,
    written=_written,
)
