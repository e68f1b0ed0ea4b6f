"""The distances from the maximum that tell kernels apart: each of 8-bit scores, else the boundaries of what comes out.

Found by running the program on rows of two elements, so that they are right for every method and every option.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.rowprog import Kind, Program, run
from softq.rowprog.library import FARTHEST

Distances = NDArray[np.float32] | NDArray[np.int64]
_MOST = 64
"""Boundaries that are kept, evenly spread over all there are."""
_GRID = 8192


def telling_distances(program: Program, params: Mapping[str, ArrayLike]) -> Distances:
    """Return distances of a score from its row's maximum, both sides of each boundary; all 256 of 8-bit scores."""
    if program.scores.is_float:
        return _of_floats(program, params)
    all_of_them = np.arange(2**program.scores.bits, dtype=np.int64)
    if program.scores.bits == 8:
        return all_of_them
    at = _spread(np.flatnonzero(_differ(_outputs(program, params, all_of_them))))
    return np.unique(np.concatenate([at, at + 1, all_of_them[[0, -1]]]))


def _of_floats(program: Program, params: Mapping[str, ArrayLike]) -> Distances:
    grid = np.linspace(0, FARTHEST * 1.01, _GRID).astype(np.float32)
    at = _spread(np.flatnonzero(_differ(_outputs(program, params, grid))))
    # The numbers from 0 on have the order of their bits, so that halving ends at two neighbours.
    low, high = grid[at].view(np.int32), grid[at + 1].view(np.int32)
    while np.any(high - low > 1):
        middle = low + (high - low) // 2
        before, between = (_outputs(program, params, bits.view(np.float32)) for bits in (low, middle))
        same = np.all(before == between, axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.unique(np.concatenate([low, high]).view(np.float32))


def _outputs(program: Program, params: Mapping[str, ArrayLike], distances: Distances) -> NDArray[np.generic]:
    """Return what the program gives for the farther of two elements, each output a column."""
    top = np.zeros_like(distances) if program.scores.is_float else np.full_like(distances, program.scores.high)
    x = np.stack([top, top - distances], axis=1).astype(program.scores.numpy)
    out = run(program, x, valid=np.ones(x.shape, np.bool_) if program.masked else None, params=params)
    rows = [out[name][:, 1] for name, node in program.outputs.items() if node.kind is Kind.ROW]
    return np.stack([row.view(np.uint32) if row.dtype == np.float32 else row.astype(np.int64) for row in rows], axis=1)


def _differ(outputs: NDArray[np.generic]) -> NDArray[np.bool_]:
    return np.any(outputs[1:] != outputs[:-1], axis=1)


def _spread(at: NDArray[np.intp]) -> NDArray[np.intp]:
    if at.size <= _MOST:
        return at
    return at[np.unique(np.linspace(0, at.size - 1, _MOST).astype(np.intp))]
