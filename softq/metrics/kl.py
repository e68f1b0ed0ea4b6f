"""Kullback-Leibler divergence of the candidate's softmax from the reference's, in nats, mean over the rows."""

from __future__ import annotations

import math

import numpy as np

from softq.data import Array
from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.meter import Floats, PerSample
from softq.metrics.base.rows import as_rows, by_blocks, has_nan, log_softmax, per_sample
from softq.metrics.base.values import MEAN


def _contribute(reference: Array, candidate: Array) -> PerSample:
    ours, theirs = as_rows("kl", reference), as_rows("kl", candidate)
    counted = ~has_nan(ours)
    total = np.where(counted, by_blocks(_divergence, ours, theirs), 0)
    return PerSample(per_sample(total, len(reference)), per_sample(counted.astype(np.float64), len(reference)))


def _divergence(ours: Array, theirs: Array) -> Floats:
    p, q = log_softmax(ours), log_softmax(theirs)
    with np.errstate(invalid="ignore"):
        # p = 0 adds nothing, even where q = 0 too: the limit of p log p.
        terms = np.where(p == -np.inf, np.where(np.isnan(q), np.nan, 0.0), np.exp(p) * (p - q))
    # Rounding may leave -1e-17 for equal rows; a divergence is never negative.
    return np.maximum(terms.sum(axis=-1), 0)


METRIC = PairedMetric(
    name="kl",
    direction="lower",
    unit="nats",
    summary="KL(softmax of the reference || softmax of the candidate) over the last axis, mean over the rows",
    needs_labels=False,
    contribute=_contribute,
    kind=MEAN,
    bounds=(0.0, math.inf),
    distance="kl",
)
