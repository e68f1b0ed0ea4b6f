"""How often the reference's highest score is among the candidate's k highest."""

from __future__ import annotations

import numpy as np

from softq.data import Array
from softq.metrics.base.meter import PerSample
from softq.metrics.base.rows import Floats, as_rows, by_blocks, first_best, has_nan, per_sample


def agreement(metric: str, k: int, reference: Array, candidate: Array) -> PerSample:
    """Return the agreeing and the counted rows of each sample.

    Among equal scores the first is the higher. A row with a NaN in the reference does not count; one with a NaN in the
    candidate alone disagrees.
    """
    # Among k classes or fewer, everything is among the k highest.
    ours, theirs = as_rows(metric, reference, columns=k + 1), as_rows(metric, candidate, columns=k + 1)

    def agrees(ours: Array, theirs: Floats) -> Floats:
        best = first_best(ours)
        score = np.take_along_axis(theirs, np.maximum(best, 0)[:, None], axis=-1)
        before = np.arange(theirs.shape[-1]) < best[:, None]
        rank = ((theirs > score) | ((theirs == score) & before)).sum(axis=-1)
        return ((best >= 0) & ~has_nan(theirs) & (rank < k)).astype(np.float64)

    total, counted = by_blocks(agrees, ours, theirs), (~has_nan(ours)).astype(np.float64)
    return PerSample(per_sample(total, len(reference)), per_sample(counted, len(reference)))
