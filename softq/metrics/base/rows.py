"""Rows of scores: the last axis of an output, whatever stands before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.meter import Floats, PerSample, is_nan

Integers: TypeAlias = npt.NDArray[np.int64]

IGNORED = -100
"""The label of positions that do not count, as PyTorch's cross-entropy has it."""

# 32 MB in float64: a block of rows of a 50,000-word vocabulary and its temporaries stay small beside the logits.
_BLOCK = 1 << 22


def as_rows(metric: str, output: Array, *, columns: int = 2) -> Array:
    """Return `[samples, ..., C]` as `[rows, C]`.

    Raises:
        InputError: the output has no rows, or fewer than `columns` columns.
    """
    if output.ndim < 2 or output.shape[-1] < columns:
        raise InputError(
            f"metric {metric} needs an output [samples, ..., classes] of at least {columns} classes;"
            f" this one has shape {list(output.shape)}"
        )
    return output.reshape(-1, output.shape[-1])


def by_blocks(function: Callable[..., Floats], *arrays: Array) -> Floats:
    """Return `function(*blocks)` (a number per row) for consecutive blocks of rows, joined."""
    rows, columns = arrays[0].shape
    step = max(1, _BLOCK // columns)
    parts = [function(*(array[start : start + step] for array in arrays)) for start in range(0, rows, step)]
    return np.concatenate(parts) if parts else np.zeros(0)


def log_softmax(scores: Array) -> Floats:
    """Return the logarithm of the softmax of each row of `[rows, C]`, in float64.

    +inf takes all the weight, shared if there are several; a row of -inf alone, or with a NaN, is all NaN.
    """
    x = scores.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = x.max(axis=-1, keepdims=True)
        x = np.where(top == np.inf, np.where(x == np.inf, 0.0, np.where(np.isnan(x), np.nan, -np.inf)), x)
        x = x - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def first_best(rows: Array) -> Integers:
    """Return the column of the highest score of each row, the first among equals; -1 for a row with a NaN."""
    best = rows.argmax(axis=-1).astype(np.int64)
    # argmax of a row with a NaN is the place of the NaN: two such rows would agree by accident.
    best[has_nan(rows)] = -1
    return best


def has_nan(rows: Array) -> npt.NDArray[np.bool_]:
    """Return which rows contain a NaN."""
    return np.logical_or.reduce(is_nan(rows), axis=-1)


def per_sample(values: Floats, samples: int) -> Floats:
    """Return the sum over the rows of each sample."""
    return values.reshape(samples, -1).sum(axis=-1)


def accuracy(metric: str, k: int, output: Array, labels: Array) -> PerSample:
    """Return in how many rows the label is among the `k` best, and how many rows count, per sample.

    Among equal scores the first is the higher. A row with a NaN is wrong; one with the label `IGNORED` does not count.

    Raises:
        InputError: the labels are no integers of the rows' shape, or one is no column.
    """
    rows = as_rows(metric, output, columns=k + 1)
    if labels.dtype.kind not in "iu" or labels.shape != output.shape[:-1]:
        raise InputError(
            f"metric {metric}: labels are {labels.dtype.name}{list(labels.shape)};"
            f" an output of shape {list(output.shape)} needs integers {list(output.shape[:-1])}"
        )
    wanted = labels.reshape(-1).astype(np.int64)
    counted = wanted != IGNORED
    wrong = counted & ((wanted < 0) | (wanted >= rows.shape[1]))
    if wrong.any():
        raise InputError(
            f"metric {metric}: label {wanted[wrong][0]} is not in 0..{rows.shape[1] - 1} or {IGNORED} (ignored)"
        )
    right = by_blocks(partial(_among, k), rows, np.where(counted, wanted, 0)[:, None]) * counted
    return PerSample(per_sample(right, len(output)), per_sample(counted.astype(np.float64), len(output)))


def _among(k: int, rows: Floats, columns: Array) -> Floats:
    """Return 1 for each row whose column [rows, 1] is among its `k` highest scores."""
    columns = columns.astype(np.int64)
    scores = np.take_along_axis(rows, columns, axis=-1)
    before = np.arange(rows.shape[-1]) < columns
    rank = ((rows > scores) | ((rows == scores) & before)).sum(axis=-1)
    return (~has_nan(rows) & (rank < k)).astype(np.float64)


def agreement(metric: str, k: int, reference: Array, candidate: Array) -> PerSample:
    """Return in how many rows the reference's best is among the candidate's `k` best, and the counted rows, per sample.

    Among equal scores the first is the higher. A row with a NaN in the reference does not count; one with a NaN in the
    candidate alone disagrees.
    """
    # Among k classes or fewer, everything is among the k highest.
    ours, theirs = as_rows(metric, reference, columns=k + 1), as_rows(metric, candidate, columns=k + 1)

    def agrees(ours: Array, theirs: Floats) -> Floats:
        best = first_best(ours)
        return (best >= 0) * _among(k, theirs, np.maximum(best, 0)[:, None])

    total, counted = by_blocks(agrees, ours, theirs), (~has_nan(ours)).astype(np.float64)
    return PerSample(per_sample(total, len(reference)), per_sample(counted, len(reference)))
