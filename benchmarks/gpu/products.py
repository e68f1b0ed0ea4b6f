"""Products of matrices against float64, and against integers to the bit: what is computed, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softq.artifact.device.steps import TileForm
from softq.artifact.program import evaluate
from softq.codegen.gpu.gemm.kernel import BYTE_KINDS

Array = NDArray[np.generic]
F64 = NDArray[np.float64]
Size = tuple[int, int, int, int]
"""How many products, m, k, n."""

Run = Callable[[TileForm, int, list[Any], Array], Array]
"""Runs a form in so many blocks on its arguments, of which the array behind them is the result; returns that."""

KINDS = [("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("u8", "u8")]
"""Types of the left and the right operand."""

SIZES: list[Size] = [(2, 1, 160, 7), (1, 3, 32, 5), (2, 8, 48, 20), (1, 9, 64, 3), (2, 70, 33, 66), (1, 130, 80, 70),
         (3, 64, 16, 64), (1, 2, 0, 3)]  # fmt: skip
_UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}


def numbers(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Return random numbers of a type as they stand in memory, halves as their bits."""
    if kind in BYTE_KINDS:
        low = -128 if kind == "i8" else 0
        return rng.integers(low, low + 256, shape).astype(np.int8 if kind == "i8" else np.uint8)
    values = rng.normal(size=shape).astype(np.float32)
    if kind == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float16).view(np.uint16) if kind == "f16" else values


def in_float64(array: Array, kind: str) -> F64:
    """Return what numbers in memory are."""
    if kind == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return (array.view(np.float16) if kind == "f16" else array).astype(np.float64)


def differences(forms: tuple[TileForm, ...], left: str, right: str, turned: bool, size: Size,
                run: Run) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield each form that takes products of a size, and what is wrong with its result: empty if nothing is."""
    count, m, k, n = size
    rng, integers = np.random.default_rng(sum(size)), left in BYTE_KINDS
    a, b = numbers(rng, left, (count, m, k)), numbers(rng, right, (count, k, n) if turned else (count, n, k))
    zeros = [numbers(rng, kind, (1,)) for kind in (left, right)] if integers else []
    x, y = in_float64(a, left), in_float64(b, right)
    if integers:
        x, y = x - float(zeros[0][0]), y - float(zeros[1][0])
    y = y if turned else np.swapaxes(y, -1, -2)
    wanted, bound = x @ y, np.zeros((count, m, n))
    if not integers:
        # Each of k products and sums is rounded by at most 2^-24 of all that is summed; a half once more.
        bound = (k + 1) * 2.0**-24 * (np.abs(x) @ np.abs(y)) + _UNIT.get(left, 0.0) * np.abs(wanted) + 2.0**-25
    sizes = (m, k, n, m * k, k * n, b.shape[-1])
    for form in forms:
        # However few blocks there are.
        start = replace(form, least_blocks=0).start(count, sizes)
        if not all(condition.holds({}) for condition in start.when):
            continue
        scalars = [np.int64(size) for size in sizes]
        result = np.zeros((count, m, n), np.int32 if integers else a.dtype)
        found = run(form, evaluate(start.blocks, {}), [a, b, *zeros, result, *scalars], result)
        value = in_float64(found, "i32" if integers else left)
        right_ones = np.abs(value - wanted) <= bound  # a NaN is not
        yield form.symbol, "" if right_ones.all() else f"{size}: {np.sum(~right_ones)} of {wanted.size} are wrong"
