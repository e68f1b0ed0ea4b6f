"""Random samples: they show that a model runs and how far outputs move, and nothing about its task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from softq.data import Array
from softq.samples.inputs import OPEN_LENGTH, Input

SMALL_BOUND = 2
"""Indices into a table whose length is not known are below this."""


def make_up(inputs: Sequence[Input], count: int, *, open_length: int = OPEN_LENGTH, seed: int = 0) -> dict[str, Array]:
    """Return arrays for `count` samples: normal values, any index that is allowed, masks that hide nothing.

    Args:
        inputs: What the model takes.
        count: Number of samples, the length of each sample axis.
        open_length: Length of each further axis that the model leaves open.
        seed: Seed of the random numbers.
    """
    random = np.random.default_rng(seed)
    return {one.array: _array(one, one.lengths(count, open_length), random) for one in inputs}


def _array(one: Input, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    dtype = np.dtype(one.dtype)
    if one.role == "mask":
        return np.ones(shape, dtype)
    if one.role == "segments" or (one.role == "positions" and not shape):
        return np.zeros(shape, dtype)
    if one.role == "positions":
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
    if one.role == "flags":
        return random.integers(0, 2, shape).astype(dtype)
    if one.role == "indices":
        return random.integers(0, one.bound or SMALL_BOUND, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return random.integers(max(limits.min, -128), min(limits.max, 255), shape, endpoint=True).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)
