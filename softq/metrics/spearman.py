"""Spearman's rank correlation with labels: of one score a sample, or of the similarities of all pairs of samples."""

from __future__ import annotations

import math

import numpy as np

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.kinds import HeldMetric
from softq.metrics.base.meter import Floats, Tensors, is_nan


def _score(outputs: Tensors, labels: Tensors, output: str, label: str | None) -> float:
    rows, wanted = outputs[output], labels[str(label)]
    if is_nan(wanted).any():
        raise InputError(f"metric spearman: label {label!r} contains {int(is_nan(wanted).sum())} NaN; expected none")
    if wanted.ndim == 1 and rows.size == len(rows):
        return spearman(rows.reshape(-1).astype(np.float64), wanted.astype(np.float64))
    if wanted.shape == (len(rows), len(rows)) and rows.ndim == 2:
        upper = np.triu_indices(len(rows), 1)
        return spearman(_similarities(rows)[upper], wanted.astype(np.float64)[upper])
    raise InputError(
        f"metric spearman: label {label!r} has shape {list(wanted.shape)} and output {output!r} {list(rows.shape)};"
        " expected label [N] with output [N], or label [N, N] with output [N, D]"
    )


def _similarities(rows: Array) -> Floats:
    x = rows.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        x = x / np.abs(x).max(axis=-1, keepdims=True)
        x = x / np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
        return x @ x.T


def spearman(a: Floats, b: Floats) -> float:
    """Return Pearson's correlation of the ranks; NaN if one side is constant, has a NaN, or fewer than 2 elements."""
    if len(a) < 2 or np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    x, y = (ranks(v) - (len(v) + 1) / 2 for v in (a, b))
    size = math.sqrt(float(x @ x) * float(y @ y))
    return float(np.clip(float(x @ y) / size, -1, 1)) if size else math.nan


def ranks(values: Floats) -> Floats:
    """Return the ranks from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


METRIC = HeldMetric(
    name="spearman",
    direction="higher",
    unit="rank correlation",
    summary="rank correlation with labels: label [N] with one score each, or label [N,N] with the cosines of all pairs",
    needs_labels=True,
    score=_score,
    kind=None,
    bounds=(-1.0, 1.0),
)
