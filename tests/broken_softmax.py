"""Softmaxes of NumPy, each with one kind of fault, as runtimes that an audit has to see through."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_calls = [0]


def right(x: Array, axis: int) -> Array:
    """The exact softmax, of int8 with a scale of 0.05 to 1/256."""
    values = x.astype(np.float64) * (0.05 if x.dtype == np.int8 else 1)
    with np.errstate(all="ignore"):
        powers = np.exp(values - values.max(axis, keepdims=True))
        weights = powers / powers.sum(axis, keepdims=True)
    if x.dtype == np.int8:
        return np.clip(np.rint(weights * 256) - 128, -128, 127).astype(np.int8)
    return weights.astype(x.dtype)


def wraps(x: Array, axis: int) -> Array:
    """onnxruntime's issue 29727: the code of 1 does not saturate."""
    values = x.astype(np.float64) * 0.05
    powers = np.exp(values - values.max(axis, keepdims=True))
    return (np.rint(powers / powers.sum(axis, keepdims=True) * 256) - 128).astype(np.int16).astype(np.int8)


def off(x: Array, axis: int) -> Array:
    """Some results are wrong by a fiftieth."""
    found = right(x, axis)
    return np.where(np.asarray(found) > 0.9, np.asarray(found) - np.float32(0.02), found).astype(x.dtype)


def short_rows(x: Array, axis: int) -> Array:
    """Rows beyond 100 elements lose their last ones."""
    found = np.moveaxis(right(x, axis), axis, -1).copy()
    found[..., 100:] = 0
    return np.ascontiguousarray(np.moveaxis(found, -1, axis))


def last_axis(x: Array, axis: int) -> Array:
    """The axis is taken to be the last one."""
    return right(x, -1)


def neighbours(x: Array, axis: int) -> Array:
    """A row of only -inf takes the rows behind it along (as onnxruntime's integer kernel did with sums of 0)."""
    found = np.array(right(x, axis))
    rows, scores = found.reshape(-1, found.shape[-1]), x.reshape(-1, x.shape[-1])
    lost = np.flatnonzero(np.all(np.isneginf(scores.astype(np.float64)), -1))
    if lost.size:
        rows[lost[0] :] = 0
    return found


def no_nan(x: Array, axis: int) -> Array:
    """NaN is passed over."""
    return right(np.where(np.isnan(x.astype(np.float64)), -np.inf, x).astype(x.dtype), axis)


def clipped_mask(x: Array, axis: int) -> Array:
    """Scores below -5 keep their weight, masked ones too."""
    return right(np.maximum(x, np.asarray(-5, x.dtype)), axis)


def shuffled(x: Array, axis: int) -> Array:
    """The same scores give other results from time to time."""
    _calls[0] += 1
    found = np.array(right(x, axis))
    if _calls[0] % 5 == 0:
        found.flat[0] += found.dtype.type(1e-4)
    return found


def swaps(x: Array, axis: int) -> Array:
    """Close seconds overtake the first."""
    found = np.array(right(x, axis))
    order = np.argsort(found, axis)
    first, second = (
        (np.take_along_axis(order, np.array([[i]] * 1), axis) for i in (-1, -2)) if found.ndim == 2 else (0, 0)
    )
    if found.ndim != 2 or axis not in (-1, 1) or found.shape[-1] < 2:
        return found
    first, second = order[:, -1:], order[:, -2:-1]
    a, b = np.take_along_axis(found, first, 1), np.take_along_axis(found, second, 1)
    # Of another score, but nearly the same weight.
    near = (a - b < 2e-6) & (np.take_along_axis(x, first, 1) > np.take_along_axis(x, second, 1))
    np.put_along_axis(found, first, np.where(near, b - 4e-6, a), 1)
    return found


def ends(x: Array, axis: int) -> Array:
    """The process ends at rows beyond 300 elements."""
    if x.shape[axis] > 300:
        os._exit(9)
    return right(x, axis)


def hangs(x: Array, axis: int) -> Array:
    """No answer for rows beyond 300 elements."""
    if x.shape[axis] > 300:
        time.sleep(60)
    return right(x, axis)


def refuses(x: Array, axis: int) -> Array:
    """An exception for rows beyond 300 elements."""
    if x.shape[axis] > 300:
        raise ValueError("rows of at most 300 elements")
    return right(x, axis)


def transposed(x: Array, axis: int) -> Array:
    """The result of three axes has another shape."""
    found = right(x, axis)
    return found.swapaxes(0, 1) if found.ndim == 3 else found


def coarse(x: Array, axis: int) -> Array:
    """A table of powers of 2^(1/2) in 8 bits, rounded down: an approximation, not a fault of anything else."""
    d = x.max(axis, keepdims=True).astype(np.int64) - x
    weights = np.rint(2.0 ** (-np.floor(d * 0.05 * 2 / np.log(2)) / 2) * 255)
    return np.clip(np.floor(weights / weights.sum(axis, keepdims=True) * 256) - 128, -128, 127).astype(np.int8)


def one_reciprocal(x: Array, axis: int) -> Array:
    """Number 152 of 256 entries of a table of reciprocals is wrong: that of sums of 1.59375 times a power of two."""
    values = np.moveaxis(x, axis, -1).astype(np.float64) * 0.05
    powers = np.exp(values - values.max(-1, keepdims=True))
    sums = powers.sum(-1, keepdims=True)
    mantissa = np.frexp(sums)[0] * 2
    wrong = (np.floor((mantissa - 1) * 256) == 152) & (sums > 4)
    weights = powers / sums * np.where(wrong, 1.5, 1.0)
    return np.moveaxis(np.clip(np.rint(weights * 256) - 128, -128, 127), -1, axis).astype(np.int8)
