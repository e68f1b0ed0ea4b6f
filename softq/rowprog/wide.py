"""What a program of f32 means in real numbers: its operations in float64, with the exponential itself.

Only the constants of the program are those of f32. So a formula can be told from another that f32 would hide.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.rowprog.evaluation import Array, Environment
from softq.rowprog.interpreter import run
from softq.rowprog.library import EXP_LIMIT
from softq.rowprog.program import Node, Program


def run_wide(
    program: Program, scores: ArrayLike, *, params: Mapping[str, ArrayLike] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return the outputs of a program of f32 scores without a mask, its f32 values held in float64.

    Args:
        program: What to run.
        scores: [..., N]; rounded to f32 first, as the program's interface has it.
        params: As in `softq.rowprog.run`.
    """
    found = run(program, np.asarray(scores, np.float32), params=params, environment=_Wide)
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


class _Wide(Environment):
    """An environment in which every float is a double."""

    def __getitem__(self, node: Node) -> Array:
        value = super().__getitem__(node)
        return value.astype(np.float64) if value.dtype == np.float32 else value

    def dtype(self, node: Node) -> np.dtype[np.generic]:
        return np.dtype(np.float64) if node.dtype.is_float else node.dtype.numpy

    def evaluate(self, node: Node) -> Array:
        if node.op != "exp_minus":
            return super().evaluate(node)
        d = self[node.args[0]]
        return np.where(np.less_equal(d, EXP_LIMIT), np.exp(-np.maximum(d, 0.0)), 0.0)
