"""What a program of f32 means in real numbers: its operations in float64, with the exponential itself.

Only the constants of the program are those of f32. So a formula can be told from another that f32 would hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.rowprog.interpreter import BACKEND, Array, Environment, run_in
from softq.rowprog.library import EXP_LIMIT
from softq.rowprog.program import Node, Program, walk


def run_wide(
    program: Program, scores: ArrayLike, *, params: Mapping[str, ArrayLike] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return the outputs of a program of f32 scores without a mask, its f32 values held in float64.

    Args:
        program: What to run.
        scores: [..., N]; rounded to f32 first, as the program's interface has it.
        params: As in `softq.rowprog.run`.
    """
    found = run_in(_Wide, program, np.asarray(scores, np.float32), params=params)
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


class _Wide(Environment):
    """An environment in which every float is a double."""

    def __getitem__(self, node: Node) -> Array:
        value = super().__getitem__(node)
        return value.astype(np.float64) if value.dtype == np.float32 else value

    def compute(self, root: Node) -> Array:
        for node in walk([root]):
            if id(node) not in self._values:
                own = _OWN.get(node.op) if node.dtype.is_float else None
                self[node] = (own or BACKEND[node.op])(self, node)
        return self[root]


def _elementwise(function: Callable[..., Array]) -> Callable[[Environment, Node], Array]:
    return lambda env, node: np.asarray(function(*(env[arg] for arg in node.args)))


def _reduction(function: Callable[..., Array], start: float) -> Callable[[Environment, Node], Array]:
    def reduce(env: Environment, node: Node) -> Array:
        x = np.broadcast_to(env[node.args[0]], env.shape)
        return np.asarray(function(x, axis=-1, keepdims=True, initial=start))

    return reduce


def _exp_minus(env: Environment, node: Node) -> Array:
    d = env[node.args[0]].astype(np.float64)
    return np.where(d <= EXP_LIMIT, np.exp(-np.maximum(d, 0.0)), 0.0)


_OWN: Mapping[str, Callable[[Environment, Node], Array]] = {
    "add": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mul": _elementwise(np.multiply),
    "divide": _elementwise(np.divide),
    "min": _elementwise(lambda a, b: np.where(np.less(a, b), a, b)),
    "max": _elementwise(lambda a, b: np.where(np.less(b, a), a, b)),
    "select": _elementwise(np.where),
    "cast": lambda env, node: env[node.args[0]].astype(np.float64),
    "rint": _elementwise(np.rint),
    "log2": _elementwise(np.log2),
    "sqrt": _elementwise(np.sqrt),
    "row_max": _reduction(np.max, -np.inf),
    "row_min": _reduction(np.min, np.inf),
    "row_sum": _reduction(np.sum, 0.0),
    "exp_minus": _exp_minus,
}
