"""How far a correct kernel may be from the reference: the program run again with its float errors moved.

Operations on integers, and single operations on floats (each rounded to nearest even), leave no freedom: what follows
from them alone is equal to the bit. Freedom is in the order of a sum, in the error of an exponential or logarithm, and,
where the program allows it, in fusing a multiplication and an addition. Each such value is moved up and down by what
two correct kernels may differ in: all alike, and each by itself at random; the least and the greatest results are the
bounds. A code next to a boundary then has two allowed values, and any other has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from softq.rowprog import Node, Program, run
from softq.rowprog.evaluation import Environment
from softq.rowprog.library import FARTHEST
from softq.rowprog.program import substitute, walk

Array = NDArray[np.generic]

EXPONENTIAL = 2.0**-21
"""Two exponentials within 1e-7 each (`library.exp_minus`), and a rounding or two of what is made of them."""
SMALL = 2.0**-124
"""Exponentials below this one may be 0, or what they are (`library.EXP_LIMIT`)."""
LOGARITHM = 2.0**-20
"""Two logarithms within 3 units in the last place each (`rowprog.ops`)."""
FUSED = 2.0**-22
"""Of the product: one rounding of it, 2^-24, more or less, and as much again for the sum; doubled."""
RESULT = 2.0**-21
"""Of a float result: the roundings of the operations behind the last value that is moved."""
_RANDOM = 12
"""Runs in which each value is moved by itself."""


def sum_error(length: int) -> float:
    """Return how far two sums of `length` numbers of one sign, in any order, may differ, relatively."""
    return length * 2.0**-23 + EXPONENTIAL


def loose_outputs(program: Program) -> tuple[str, ...]:
    """Return the names of the outputs that are not equal to the bit."""
    return tuple(name for name, node in program.outputs.items() if any(_is_loose(n, program) for n in walk([node])))


def bounds(
    program: Program, scores: ArrayLike, *, valid: ArrayLike | None, params: Mapping[str, ArrayLike]
) -> dict[str, tuple[Array, Array]]:
    """Return the least and the greatest value allowed of each output that is not equal to the bit.

    Arguments are those of `run`.
    """
    names = loose_outputs(program)
    if not names:
        return {}
    nominal = run(program, scores, valid=valid, params=params)
    low, high = ({name: np.array(nominal[name]) for name in names} for _ in range(2))
    # What is assumed of its values need not hold of moved ones.
    free = replace(program, outputs=substitute(program.outputs, {}, assumptions=False))
    for signs in _signs():
        found = run(
            free, scores, valid=valid, params=params, environment=lambda shape, signs=signs: _Moved(shape, free, signs)
        )
        for name in names:
            low[name] = np.fmin(low[name], found[name])
            high[name] = np.fmax(high[name], found[name])
    return {name: _widened(nominal[name], low[name], high[name]) for name in names}


def _widened(nominal: Array, low: Array, high: Array) -> tuple[Array, Array]:
    if nominal.dtype != np.float32:
        return low, high
    below, above = low.astype(np.float64), high.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        below, above = below - np.abs(below) * RESULT, above + np.abs(above) * RESULT
        below, above = below.astype(np.float32), above.astype(np.float32)
    undefined = np.isnan(nominal)
    return np.where(undefined, np.float32(np.nan), below), np.where(undefined, np.float32(np.nan), above)


def _is_loose(node: Node, program: Program) -> bool:
    if not node.dtype.is_float:
        return False
    return node.op in ("exp_minus", "log2", "row_sum") or (
        program.contract and (node.op == "scan" or _product(node) is not None)
    )


def _product(node: Node) -> Node | None:
    """Return the product that may be fused into this sum or difference."""
    if node.op not in ("add", "sub"):
        return None
    return next((arg for arg in node.args if arg.op == "mul"), None)


Signs = Mapping[str, int] | np.random.Generator
"""Where values go: those of one operator all alike, 1 up and -1 down; or each at random."""


def _signs() -> Iterator[Signs]:
    for elementwise, of_sums in product((-1, 0, 1), repeat=2):
        yield {"exp_minus": elementwise, "log2": elementwise, "row_sum": of_sums, "scan": of_sums, "add": of_sums}
    yield from (np.random.default_rng(seed) for seed in range(_RANDOM))


class _Moved(Environment):
    """An environment that moves each value that two correct kernels may differ in."""

    def __init__(self, shape: tuple[int, ...], program: Program, signs: Signs) -> None:
        super().__init__(shape)
        self._program, self._signs = program, signs

    def __setitem__(self, node: Node, value: Array) -> None:
        super().__setitem__(node, self._moved(node, value) if _is_loose(node, self._program) else value)

    def _moved(self, node: Node, value: Array) -> Array:
        x = value.astype(np.float64)
        if isinstance(self._signs, np.random.Generator):
            sign = self._signs.integers(-1, 2, size=x.shape).astype(np.float64)
        else:
            sign = np.asarray(float(self._signs.get(node.op, self._signs["add"])))
        factor = _product(node)
        if factor is not None:
            return (x + sign * FUSED * np.where(np.isfinite(self[factor]), np.abs(self[factor]), 0)).astype(np.float32)
        if node.op == "exp_minus":
            small = np.where(np.less_equal(self[node.args[0]], FARTHEST), SMALL, 0.0)
            return np.maximum(x * (1 + sign * EXPONENTIAL) + sign * small, 0.0).astype(np.float32)
        error = LOGARITHM if node.op == "log2" else sum_error(self.shape[-1])
        return (x * (1 + sign * error)).astype(np.float32)
