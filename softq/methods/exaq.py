"""EXAQ: few bits for the distance from the maximum, clipped where its standard deviation says.

    c = min(rint((max - x) * L / C), L), L = 2^b - 1
    w[c] = rint(2^(W-1) * exp(-c * C / L)),  output = sum(w[c_j] V_j) / sum(w[c_j])

C, the distance of the last code, follows from sigma, the standard deviation of the distances of all elements that are
not masked: C = 1.66 sigma + 1.85 for 2 bits, 1.75 sigma + 2.06 for 3, 1.83 sigma + 2.27 for 4, but never more than the
greatest distance seen.

Source: EXAQ, arXiv 2410.03185 (2024), the linear approximations of the optimal clip, as in its code
(github.com/Anonymous1252022/EXAQ, 57570f8). The code also ships a table of optimal clips, which saturates (5.2, 5.8 and
6.5 at sigma = 9.6) and so contradicts the lines for great sigma; the lines are the paper's and are taken here.
Input: any f32 (-inf is masked, +inf takes all the weight), or 8-bit integers with a step of `step` per unit.
Integers: code c, b bits, step C / L. Weight, unsigned, 2^(W-1) for 1. The last code is no zero: it weighs exp(-C), so
that long rows gain a mass of as many exp(-C) as they have far elements. Masked elements weigh exactly 0, as they bypass
the quantizer in the source; so do float scores 104 or more below the maximum. The source sums exponentials in floats;
these are integers with an error of half a unit of 2^-(W-1).
Normalizer: u32 sum of weights; cannot overflow for N <= (2^32 - 1) / 2^(W-1), 262,143 with W = 15.
8-bit integer scores: c = (d * M + 2^(s-1)) >> s with M / 2^s = step * L / C, within 31 bits.
Error: within half a step, C / (2 L), of the distance up to C; beyond C the weight stays exp(-C).
Calibration: optional; `clip` is measured, per site or per head. Sigma is taken over all kept calibration rows
together, where the source averages over 25 forward calls. Without data, C is that of sigma = 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softq.errors import UsageError
from softq.methods import FITTED_SCOPES, Auto, Error, Method, Options, Outputs, Sample, Scope, option
from softq.methods._fitted import Given, fit_if_calibrated, per_head, take
from softq.methods._scale import integer_step
from softq.rowprog import DType, Trace
from softq.rowprog.library import FARTHEST, integer_distance

_LINES = {2: (1.66, 1.85), 3: (1.75, 2.06), 4: (1.83, 2.27)}
"""Slope and offset of the clip over sigma, by bits."""

_TYPICAL_SIGMA = 2.0
_LEAST_CLIP, _GREATEST_CLIP = 0.125, 1024.0


@dataclass(frozen=True)
class ExaqOptions(Options):
    """Width of codes and weights, and the distance of the last code."""

    bits: int = option(4, "bits of a code", low=2, high=4)
    clip: float | Auto | Scope = option(
        "auto", "distance of the last code, or measured per site or head; auto: measured per site where there are "
        "calibration data, else that of a standard deviation of 2",
        low=_LEAST_CLIP, high=_GREATEST_CLIP,
    )  # fmt: skip
    weight_bits: int = option(15, "bits of an unsigned weight", low=8, high=24)
    step: float = integer_step()


def clip_of(bits: int, sigma: float) -> float:
    """Return the distance of the last code for a standard deviation of the distances."""
    slope, offset = _LINES[bits]
    return slope * sigma + offset


def _constants(options: ExaqOptions, fitted: Mapping[str, float]) -> dict[str, float | Sequence[float]]:
    clip, last = float(fitted.get("clip", options.clip)), 2**options.bits - 1
    one = 2.0 ** (options.weight_bits - 1)
    return {"rate": last / clip, "weights": [round(one * math.exp(-c * clip / last)) for c in range(last + 1)]}


def _trace(t: Trace, options: ExaqOptions) -> Outputs:
    last, fitted = 2**options.bits - 1, options.clip in FITTED_SCOPES
    if fitted and not t.scores.dtype.is_float:
        raise UsageError(f"exaq of {t.scores.dtype.value} scores with clip={options.clip}: give a number")
    rate, table = take(
        t, options, "clip", _constants,
        Given("rate", last / _GREATEST_CLIP, last / _LEAST_CLIP, "last code over clip: codes a unit"),
        Given("weights", 0, 2 ** (options.weight_bits - 1), "weight of each code", DType.U32, last + 1),
    )  # fmt: skip
    if fitted:
        d = integer_distance(t, 1.0, last, rate=rate)
    else:
        d = integer_distance(t, float(options.clip) / last, last, options.step)
    weights = d.weigh(t.lut(table, d.row))
    return {"weights": weights, "normalizer": d.normalizer(t.row_sum(weights)), "codes": t.cast(d.row, DType.U8)}


def _fit(options: ExaqOptions, samples: Sequence[Sample], error: Error) -> Mapping[str, float]:
    """Return the clip that the distances' standard deviation asks for; no search."""
    rows = [row for sample in samples for row in sample.scores.astype(np.float64) if row.max() > -math.inf]
    # A finite mask that stays in the scores looks like a score: what the exact softmax gives no weight takes no part.
    seen = [distances[distances < FARTHEST] for row in rows for distances in [row.max() - row]]
    if not seen:
        # A head whose rows are fully masked in all calibration data.
        return {"clip": clip_of(options.bits, _TYPICAL_SIGMA)}
    distances = np.concatenate(seen)
    clip = min(clip_of(options.bits, float(distances.std())), float(distances.max()))
    return {"clip": min(max(clip, _LEAST_CLIP), _GREATEST_CLIP)}


METHOD = Method(
    name="exaq",
    summary="2 to 4 bits for the distance from the maximum, clipped by its standard deviation.",
    source="EXAQ, arXiv 2410.03185",
    options=ExaqOptions,
    trace=_trace,
    integer_scores=True,
    drop_in=True,
    calibration="optional: measures clip from the standard deviation of the distances, per site or per head",
    resolve=fit_if_calibrated(clip=lambda options: clip_of(options.bits, _TYPICAL_SIGMA)),
    parameters=per_head(clip=_constants),
    fit=_fit,
)
