"""The largest absolute difference of any element from the reference's."""

from __future__ import annotations

import math

import numpy as np

from softq.data import Array
from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.meter import Floats, PerSample
from softq.metrics.base.values import MAXIMUM


def difference(reference: Array, candidate: Array) -> tuple[Floats, Floats]:
    """Return |candidate - reference| and the reference, `[samples, elements]` in float64.

    Equal infinities differ by 0. Where the reference is NaN both are 0.
    """
    samples = len(reference)
    a, b = (array.reshape(samples, -1).astype(np.float64) for array in (reference, candidate))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(a == b, 0, np.abs(b - a))
    unknown = np.isnan(a)
    return np.where(unknown, 0, apart), np.where(unknown, 0, a)


def _contribute(reference: Array, candidate: Array) -> PerSample:
    apart, _ = difference(reference, candidate)
    known = ~np.isnan(reference.reshape(len(reference), -1).astype(np.float64))
    return PerSample(apart.max(axis=-1), known.max(axis=-1).astype(np.float64))


METRIC = PairedMetric(
    name="max-error",
    direction="lower",
    unit="output units",
    summary="largest absolute difference of any element from the reference's",
    needs_labels=False,
    contribute=_contribute,
    kind=MAXIMUM,
    bounds=(0.0, math.inf),
)
