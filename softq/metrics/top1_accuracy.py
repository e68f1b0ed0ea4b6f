"""Top-1 accuracy: how often the highest score is at the label."""

from __future__ import annotations

import numpy as np

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.kinds import AloneMetric
from softq.metrics.base.meter import PerSample
from softq.metrics.base.rows import as_rows, first_best, per_sample
from softq.metrics.base.values import PROPORTION

IGNORED = -100
"""The label of positions that do not count, as PyTorch's cross-entropy has it."""


def _contribute(output: Array, labels: Array) -> PerSample:
    rows = as_rows("top1-accuracy", output)
    if labels.dtype.kind not in "iu" or labels.shape != output.shape[:-1]:
        raise InputError(
            f"metric top1-accuracy: labels are {labels.dtype.name}{list(labels.shape)};"
            f" an output of shape {list(output.shape)} needs integers {list(output.shape[:-1])}"
        )
    wanted = labels.reshape(-1).astype(np.int64)
    counted = wanted != IGNORED
    wrong = counted & ((wanted < 0) | (wanted >= rows.shape[1]))
    if wrong.any():
        raise InputError(
            f"metric top1-accuracy: label {wanted[wrong][0]} is not in 0..{rows.shape[1] - 1} or {IGNORED} (ignored)"
        )
    right = (first_best(rows) == wanted) & counted
    return PerSample(
        per_sample(right.astype(np.float64), len(output)), per_sample(counted.astype(np.float64), len(output))
    )


METRIC = AloneMetric(
    name="top1-accuracy",
    direction="higher",
    unit="fraction",
    summary=f"how often the highest score is at the label; a row with a NaN is wrong, label {IGNORED} is ignored",
    needs_labels=True,
    contribute=_contribute,
    kind=PROPORTION,
    bounds=(0.0, 1.0),
    distance="kl",
)
