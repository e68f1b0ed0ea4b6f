"""95 % confidence intervals over samples (windows of text, images), with both models on the same samples.

The value of interest is a ratio of sums, R = sum(d_i) / sum(n_i), with d_i the difference that sample i makes and n_i
its weight. Its variance is that of the ratio estimator by linearisation (W. G. Cochran, Sampling Techniques, 3rd
edition, 1977, section 2.11, without the finite population's correction):

    Var(R) = sum((d_i - R n_i)^2) / (k (k - 1) nbar^2)

for k samples, and the interval is R +- t * sqrt(Var(R)), with t the 97.5 % quantile of Student's distribution with
k - 1 degrees of freedom. Where that leaves what a value can be, the samples are too few or too skewed for it, and the
interval is the bootstrap's: the 2.5 % and 97.5 % quantiles of R over 2,000 draws of k samples with replacement, from
one seed (B. Efron, Annals of Statistics 7, 1979), which never leaves it. Pairing takes out what the samples have in
common; samples of one document are not independent, and the interval is then too short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from softq.errors import UsageError
from softq.metrics.base.meter import Floats
from softq.metrics.base.proportions import Z
from softq.wording import counted

DRAWS = 2000
_SEED = 0
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its 95 % confidence interval."""

    estimate: float
    low: float
    high: float


def mean_interval(total: Floats, weight: Floats, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Interval:
    """Return the interval of sum(total) / sum(weight); samples without weight are left out.

    Args:
        total: What each sample adds.
        weight: Its weight.
        bounds: The least and the greatest that the value can be; by Student's t where that stays inside.

    Raises:
        UsageError: the arrays are not of one length, or fewer than two samples have weight.
    """
    total, weight = np.asarray(total, np.float64), np.asarray(weight, np.float64)
    if total.ndim != 1 or total.shape != weight.shape:
        raise UsageError(f"totals have shape {list(total.shape)}, weights {list(weight.shape)}; expected one length")
    total, weight = total[weight > 0], weight[weight > 0]
    k = len(total)
    if k < 2:
        raise UsageError(f"{counted(k, 'sample')} with weight; an interval needs at least 2")
    ratio, spread = ratio_estimate(total, weight)
    margin = student_quantile(k - 1) * spread
    low, high = ratio - margin, ratio + margin
    if (low < bounds[0] or high > bounds[1]) and spread > 0:
        low, high = _bootstrap_ends(total, weight)
    # Rounding may leave a sum of ones beside their number.
    return Interval(ratio, min(max(low, bounds[0]), ratio), max(min(high, bounds[1]), ratio))


def ratio_estimate(total: Floats, weight: Floats) -> tuple[float, float]:
    """Return sum(total) / sum(weight) over at least two samples, and its standard error."""
    k, ratio = len(total), float(total.sum() / weight.sum())
    with np.errstate(invalid="ignore"):
        spread = math.sqrt(float(np.square(total - ratio * weight).sum()) / (k * (k - 1))) / float(weight.mean())
    return ratio, spread


def _bootstrap_ends(total: Floats, weight: Floats) -> tuple[float, float]:
    generator, k = np.random.default_rng(_SEED), len(total)
    step = max(1, _AT_ONCE // k)
    parts: list[Floats] = []
    for start in range(0, DRAWS, step):
        chosen = generator.integers(0, k, (min(step, DRAWS - start), k))
        parts.append(total[chosen].sum(axis=1) / weight[chosen].sum(axis=1))
    low, high = np.quantile(np.concatenate(parts), [0.025, 0.975])
    return float(low), float(high)


def paired_ratio_interval(reference: Floats, candidate: Floats, counts: Floats) -> Interval:
    """Return the candidate's perplexity over the reference's, with its 95 % interval.

    The interval is that of the mean NLL difference, exponentiated.

    Args:
        reference: Sum of the reference's NLL in nats over the tokens of each window.
        candidate: The same of the candidate, on the same windows.
        counts: Tokens of each window.

    Raises:
        UsageError: the arrays are not of one length, or fewer than two windows have tokens.
    """
    ours, theirs = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if ours.shape != theirs.shape:
        raise UsageError(f"the reference has {ours.shape} windows, the candidate {theirs.shape}; expected one length")
    with np.errstate(invalid="ignore"):
        log = mean_interval(theirs - ours, counts)
    return exponential(log)


def exponential(log: Interval) -> Interval:
    """Return the interval of exp of a value; infinity where that overflows."""
    with np.errstate(over="ignore"):
        return Interval(*(float(np.exp(v)) for v in (log.estimate, log.low, log.high)))


def student_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t distribution with so many degrees of freedom.

    The distribution function for whole degrees of freedom is Abramowitz & Stegun 26.7.3 and 26.7.4, inverted by
    bisection of the angle; above 300 the expansion 26.7.5, whose relative error there is below 1e-10.
    """
    if freedom > 300:
        z = Z
        g1 = (z**3 + z) / 4
        g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, freedom) < 0.95 else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _two_sided(angle: float, freedom: int) -> float:
    """P(|T| < sqrt(freedom) * tan(angle))."""
    cos2 = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= power / (power + 1) * cos2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
