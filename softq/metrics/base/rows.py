"""Rows of scores: the last axis of an output, whatever stands before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from softq.data import Array
from softq.errors import InputError
from softq.metrics.base.meter import Floats, PerSample, is_nan

Integers: TypeAlias = npt.NDArray[np.int64]

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


def agreement(metric: str, k: int, reference: Array, candidate: Array) -> PerSample:
    """Return in how many rows the reference's best is among the candidate's `k` best, and the counted rows, per sample.

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
