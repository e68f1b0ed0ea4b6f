"""Relative error: Euclidean norm of the difference over that of the reference, over all elements of all samples."""

from __future__ import annotations

import math

import numpy as np

from softq.data import Array
from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.meter import PerSample
from softq.metrics.base.values import ROOT_RATIO
from softq.metrics.max_error import difference


def _contribute(reference: Array, candidate: Array) -> PerSample:
    apart, size = difference(reference, candidate)
    # An infinity in the norm would hide every finite error behind x / inf = 0.
    size = np.where(np.isinf(size), 0, size)
    with np.errstate(over="ignore"):
        return PerSample(np.square(apart).sum(axis=-1), np.square(size).sum(axis=-1))


METRIC = PairedMetric(
    name="relative-error",
    direction="lower",
    unit="fraction",
    summary="norm of the difference over the norm of the finite part of the reference, over all samples",
    needs_labels=False,
    contribute=_contribute,
    kind=ROOT_RATIO,
    bounds=(0.0, math.inf),
)
