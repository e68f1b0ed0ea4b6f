"""Rows of scores that an audit asks for: exhaustive where that is possible, else chosen to break kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from softq.audit.subject import Reals, Subject
from softq.audit.task import Array, Encoding
from softq.rowprog.types import DType
from softq.vectors.rows import scores_of_length

_MAXIMA = 9
_FLOAT_DISTANCES = 16_384
_FARTHEST = 120.0
"""e^-104 is the least exponential of float32, subnormal ones included."""
_SHARES, _DISTANCES = 32, 64
_MANTISSAS = 256
"""Sums between two powers of two that rows are made for: a table of reciprocals has so many entries at most."""
_BESIDE = 2.0**-10
"""How far beside a sum at which a result changes rows have theirs, as a share of it: a quarter of a unit at most."""


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


def sum_rows(subject: Subject, length: int) -> tuple[Array, int]:
    """Return rows [R, length] of 8-bit scores that reach every sum which matters, and how many sums are left out.

    A sum is that of e^(score - maximum). A result of an element at the distance d is w[d] / sum, so its code changes
    where the sum passes w[d] / ((k + 1/2) units), rounded to the nearest, or w[d] / (k units), rounded down: for each d
    and k there is a row right below and one right above, with such an element in it. Between two neighbours of these
    sums all results of the exact softmax are the same. A kernel that takes a reciprocal by tables or by Newton's steps
    depends on the exponent and the mantissa of the sum: there are rows for 256 mantissas between any two powers of two.
    Sums that no row of this length has are left out: it has one element at the maximum, and the others weigh something.
    Rows end within 2^-11 of their sums.
    """
    assert subject.scores is not None and subject.result is not None, "integers"  # noqa: PT018
    span = int(subject.highest - subject.lowest)
    weights: Reals = np.exp(-subject.scores.scale * np.arange(span + 1.0))
    held, wanted = _wanted_sums(weights, subject.result, length)
    # All the others at the bottom, and then, one after another, each as high as the sum allows.
    distances = np.full((wanted.size, length), span)
    distances[:, 0], distances[:, 1] = 0, held
    gains = weights - weights[-1]
    left = wanted - (weights[0] + weights[held] + (length - 2) * weights[-1])
    possible = left >= 0
    held, wanted, distances, left = held[possible], wanted[possible], distances[possible], left[possible]
    for place in range(2, length):
        # Gains fall with the distance: the first that fits is the greatest that does.
        chosen = np.minimum(np.searchsorted(-gains, -left), span)
        distances[:, place] = chosen
        left -= gains[chosen]
    # What is left would not fit into so many elements.
    reached = left <= wanted * _BESIDE / 2
    rows = (subject.highest - distances[reached]).astype(subject.dtype)
    return rows, possible.size - len(rows)


def _wanted_sums(weights: Reals, result: Encoding, length: int) -> tuple[NDArray[np.int64], Reals]:
    """Return the sums that rows are to have, and the distance of an element that each has to have beside the maximum.

    Args:
        weights: Of the distances.
        result: What results stand for.
        length: Elements of a row.
    """
    greatest = 1.0 + weights
    halves: Reals = np.arange(1.0, 2 * (result.high - result.low) + 2) / 2 * result.scale
    sums = weights[:, None] / halves
    d, k = np.nonzero((sums >= greatest[:, None]) & (sums <= length))
    changes, held = sums[d, k], d
    powers: Reals = np.exp2(np.arange(float(length.bit_length())))
    mantissas: Reals = np.outer(powers, 1 + np.arange(_MANTISSAS) / _MANTISSAS).ravel()
    mantissas = mantissas[mantissas <= length]
    # A second element at the maximum, where the sum allows that.
    second = np.where(mantissas < greatest[0], weights.size - 1, 0)
    wanted = np.concatenate([changes * (1 - _BESIDE), changes * (1 + _BESIDE), mantissas])
    return np.concatenate([held, held, second]), wanted


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
