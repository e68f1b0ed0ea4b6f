"""Operators that onnx's reference evaluator lacks or computes otherwise than a function means them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

Array = NDArray[np.generic]

REAL = "softq.real"
"""Domain of what two operators mean together before the first one is rounded."""


class GatherElements(OpRun):
    """The operator of that name: the evaluator's own refuses axes that are counted from the end."""

    def _run(self, data: Array, indices: NDArray[np.int64], axis: int = 0) -> tuple[Array]:
        return (np.take_along_axis(data, indices, axis),)


class ScatterElements(OpRun):
    """The operator of that name, of which the evaluator's own takes elements one by one."""

    def _run(
        self, data: Array, indices: NDArray[np.int64], updates: Array, axis: int = 0, reduction: str | None = None
    ) -> tuple[Array]:
        if reduction not in {None, "", "none"} or updates.shape != indices.shape:
            raise ValueError(f"ScatterElements with reduction {reduction} of {updates.shape}")
        out = data.copy()
        np.put_along_axis(out, indices, updates, axis)
        return (out,)


class Log1p(OpRun):
    """ln(1 + y)."""

    op_domain = REAL

    def _run(self, y: Array) -> tuple[Array]:
        return (np.log1p(y),)


class Expm1(OpRun):
    """e^y - 1."""

    op_domain = REAL

    def _run(self, y: Array) -> tuple[Array]:
        return (np.expm1(y),)


OPERATORS: list[type[OpRun]] = [GatherElements, ScatterElements, Log1p, Expm1]
