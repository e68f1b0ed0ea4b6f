"""Rows of scores that an audit asks for: exhaustive where that is possible, else chosen to break kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softq.audit.subject import Subject
from softq.audit.task import Array
from softq.rowprog.types import DType
from softq.vectors.rows import scores_of_length

_MAXIMA = 9
_FLOAT_DISTANCES = 16_384
_FARTHEST = 120.0
"""e^-104 is the least exponential of float32, subnormal ones included."""
_SHARES, _DISTANCES = 32, 64


def pairs(subject: Subject) -> Array:
    """Return rows [R, 2] of a maximum and a score.

    Of 8 bits: all 32,896. Of 16 bits: 9 maxima, and each score that is no greater. Of float16: 0 and each finite number
    that is not positive, and each number beside itself. Of wider floats: distances on a grid, from several maxima.
    """
    if subject.dtype == "float16":
        finite = np.arange(2**16, dtype=np.uint16).view(np.float16)
        finite = finite[np.isfinite(finite)].astype(np.float64)
        below = finite[finite <= 0]
        return np.concatenate([np.stack([np.zeros_like(below), below], 1), np.stack([finite, finite], 1)])
    if subject.is_float:
        distances = np.concatenate([[0.0], np.geomspace(1e-30, 1.0, 512), np.linspace(0, _FARTHEST, _FLOAT_DISTANCES)])
        tops = np.array([0.0, 1.0, -3.5, 100.0, -1000.0])
        rows = np.stack(np.broadcast_arrays(tops[:, None], tops[:, None] - distances), -1).reshape(-1, 2)
        return rows.astype(subject.dtype)
    low, high = int(subject.lowest), int(subject.highest)
    maxima = np.arange(low, high + 1) if high - low < 256 else np.linspace(low, high, _MAXIMA).astype(np.int64)
    rows = [np.stack([np.full(top - low + 1, top), np.arange(low, top + 1)], 1) for top in maxima]
    return np.concatenate(rows).astype(subject.dtype)


def long_rows(subject: Subject, length: int, rng: np.random.Generator, count: int = 20) -> tuple[Sequence[str], Array]:
    """Return rows [R, length] of finite scores, and what is special about each."""
    kind = DType.named(subject.dtype) or DType.F32
    found = [
        (name, np.asarray(row, np.float64))
        for name, row in scores_of_length(kind, length, count, rng, np.zeros(0))
        if np.all(np.isfinite(row))
    ]
    found += [("one sum of many", row) for row in _sums(subject, length)]
    rows = np.clip(np.stack([row for _, row in found]), subject.lowest, subject.highest)
    return [name for name, _ in found], rows.astype(subject.dtype)


def _sums(subject: Subject, length: int) -> Array:
    """Return rows whose sums of exponentials lie between 1 and their length: some elements at the top, some below."""
    if length < 2:
        return np.zeros((0, length))
    counts = np.unique(np.geomspace(1, length - 1, _SHARES).astype(np.int64))
    step = 1.0 if subject.scores is None else subject.scores.scale
    distances = np.unique(np.rint(np.geomspace(0.01, 20, _DISTANCES) / step)) * (step if subject.is_float else 1)
    top = 0.0 if subject.is_float else subject.highest
    distances = distances[distances <= top - subject.lowest]
    at_top = np.arange(length) < counts[:, None, None]
    return np.where(at_top, top, top - distances[None, :, None]).reshape(-1, length)
