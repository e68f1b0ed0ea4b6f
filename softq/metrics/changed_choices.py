"""Changed choices: the share of indices (of TopK, ArgMax) or flags that the candidate does not choose.

In a row of integers that all differ in both models, as TopK gives them, the order is no choice: an index is changed if
the candidate's row lacks it. In other rows it is changed if the candidate has another one at its place.
"""

from __future__ import annotations

import numpy as np

from softq.data import Array
from softq.metrics.base.kinds import PairedMetric
from softq.metrics.base.meter import PerSample, is_nan
from softq.metrics.base.values import MEAN


def _contribute(reference: Array, candidate: Array) -> PerSample:
    samples, columns = len(reference), reference.shape[-1] if reference.ndim > 1 else 1
    ours, theirs = (array.reshape(-1, columns) for array in (reference, candidate))
    known = ~is_nan(ours)
    changed = ((ours != theirs) & known).sum(-1)
    if ours.dtype.kind in "iu" and columns > 1:
        sorted_rows = [np.sort(array, axis=-1) for array in (ours, theirs)]
        sets = np.all([np.all(np.diff(array) != 0, axis=-1) for array in sorted_rows], axis=0)
        shared = (np.diff(np.sort(np.concatenate(sorted_rows, axis=-1), axis=-1)) == 0).sum(-1)
        changed = np.where(sets, columns - shared, changed)
    counts = (part.reshape(samples, -1).sum(-1).astype(np.float64) for part in (changed, known))
    return PerSample(*counts)


METRIC = PairedMetric(
    name="changed-choices",
    direction="lower",
    unit="fraction",
    summary="share of indices or flags that the candidate does not choose",
    needs_labels=False,
    contribute=_contribute,
    kind=MEAN,
    bounds=(0.0, 1.0),
)
