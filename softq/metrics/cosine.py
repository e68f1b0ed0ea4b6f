"""Cosine similarity of each sample's output to the reference's, mean over the samples."""

from __future__ import annotations

import numpy as np

from softq.data import Array
from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.meter import Floats, PerSample
from softq.metrics.base.values import MEAN


def _contribute(reference: Array, candidate: Array) -> PerSample:
    samples = len(reference)
    a, b = (array.reshape(samples, -1).astype(np.float64) for array in (reference, candidate))
    known = ~np.isnan(a)
    weight = known.max(axis=-1).astype(np.float64)
    # A sample that is NaN throughout has nothing to compare, not two equal vectors of zeros.
    return PerSample(row_cosine(np.where(known, a, 0), np.where(known, b, 0)) * weight, weight)


def row_cosine(a: Floats, b: Floats) -> Floats:
    """Return the cosine of each row of `a` with the same row of `b`.

    Two zero rows are equal (1); a zero row resembles no other (0). A row with an infinity has no direction (NaN).
    """
    with np.errstate(invalid="ignore"):
        a, b = _scaled(a), _scaled(b)
        cross, aa, bb = (np.einsum("ij,ij->i", x, y) for x, y in ((a, b), (a, a), (b, b)))
        zero = (aa == 0) | (bb == 0)
        cosine = np.clip(cross / np.sqrt(np.where(zero, 1, aa * bb)), -1, 1)
        return np.where(zero & ~np.isnan(aa + bb), (aa == bb).astype(np.float64), cosine)


def _scaled(rows: Floats) -> Floats:
    # The largest element becomes 1, so that no square overflows or vanishes.
    top = np.abs(rows).max(axis=-1, keepdims=True, initial=0)
    return rows / np.where(top == 0, 1, top)


METRIC = PairedMetric(
    name="cosine",
    direction="higher",
    unit="cosine",
    summary="cosine similarity of a sample's output to the reference's, mean over the samples",
    needs_labels=False,
    contribute=_contribute,
    kind=MEAN,
    bounds=(-1.0, 1.0),
)
