"""Recall at k of retrieval: by the scores of documents, or by the similarity of embeddings."""

from __future__ import annotations

from functools import partial

import numpy as np

from softq.data import Array
from softq.errors import InputError, UsageError
from softq.metrics.base.kinds import HeldMetric
from softq.metrics.base.meter import Floats, Tensors
from softq.metrics.base.rows import has_nan


def _score(k: int, outputs: Tensors, labels: Tensors, output: str, label: str | None) -> float:
    rows, wanted = outputs[output], labels[str(label)]
    if k < 1:
        raise UsageError(f"metric recall: k is {k}; it must be at least 1")
    if rows.ndim == 2 and wanted.shape == rows.shape and wanted.dtype.kind in "iub":
        return _of_documents(k, rows.astype(np.float64), wanted.astype(np.bool_))
    if rows.ndim == 2 and wanted.shape == rows.shape[:1] and wanted.dtype.kind in "iu":
        return _of_neighbours(k, rows, wanted)
    raise InputError(
        f"metric recall: label {label!r} is {wanted.dtype.name}{list(wanted.shape)} and output {output!r}"
        f" {list(rows.shape)}; expected scores [N, documents] with the same shape of 0 and 1, or embeddings [N, D] with"
        " integers [N]"
    )


def _of_documents(k: int, scores: Floats, relevant: Array) -> float:
    """Return the share of a query's relevant documents that are among its k best, mean over queries that have one."""
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    there = relevant.sum(axis=-1)
    found = np.take_along_axis(relevant, best, axis=-1).sum(axis=-1) * ~has_nan(scores)
    return float((found[there > 0] / there[there > 0]).mean()) if (there > 0).any() else float("nan")


def _of_neighbours(k: int, rows: Array, groups: Array) -> float:
    """Return how often one of a sample's k nearest others, by the cosine, is of its group, where there is one."""
    x = rows.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        x = x / np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
    same = groups[:, None] == groups
    np.fill_diagonal(same, False)
    hits: list[bool] = []
    for number in np.flatnonzero(same.any(axis=-1)):
        near = x @ x[number]
        near[number] = -np.inf
        best = np.argsort(-near, kind="stable")[:k]
        hits.append(bool(same[number, best].any()) and not np.isnan(near).any())
    return float(np.mean(hits)) if hits else float("nan")


def _make(k: int = 10) -> HeldMetric:
    return HeldMetric(
        name="recall",
        direction="higher",
        unit="fraction",
        summary="recall at k: scores [N,M] and label [N,M] of 0 and 1, or embeddings [N,D] and groups [N]; recall,k=10",
        needs_labels=True,
        score=partial(_score, k),
        kind=None,
        bounds=(0.0, 1.0),
        make=_make,
    )


METRIC = _make()
