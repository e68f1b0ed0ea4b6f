"""Sums of products as real numbers: what a graph multiplies them by, done in registers before they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from softq.codegen.cpu.rows.tir import broadcast, cast
from softq.compiler.steps.product import Epilogue
from softq.compiler.tir.symbolic import key


@dataclass(frozen=True)
class ScaledSums:
    """A sum as float32, times numbers, one after another: each product is rounded.

    Attributes:
        kind: Type of the sums: int32 or float32.
        operands: How many numbers are read from memory.
        factors: Each factor: the position of an operand, or a constant.
    """

    kind: str
    operands: int
    factors: tuple[int | float, ...]

    @property
    def suffix(self) -> str:
        """What tells kernels with it from others."""
        words = (f"{x}" if isinstance(x, int) else f"by{np.float32(x).view(np.uint32):08x}" for x in self.factors)
        return "_".join(("scaled", *words))

    def apply(self, sums: Any, operands: Sequence[Any], lanes: int) -> Any:
        """Return the real numbers of some sums."""
        value = cast(sums, self.kind, "float32", lanes)
        for factor in self.factors:
            one = operands[factor] if isinstance(factor, int) else tirx.FloatImm("float32", factor)
            value = tirx.Mul(value, broadcast(one, lanes))
        return value


def scaled_sums(epilogue: Epilogue) -> ScaledSums | None:
    """Return what a function of a sum is, or None if it is something else."""
    places = {key(operand.var): i for i, operand in enumerate(epilogue.operands)}
    if any(operand.where != "one" or operand.dtype != "float32" for operand in epilogue.operands):
        return None
    factors: list[int | float] = []
    value = epilogue.value
    while isinstance(value, tirx.Mul):
        sides = [_factor(side, places) for side in (value.a, value.b)]
        if (sides[0] is None) == (sides[1] is None):
            return None
        factors.append(next(side for side in sides if side is not None))
        value = value.a if sides[0] is None else value.b
    kind = str(epilogue.element.ty.dtype)
    if kind != "float32":
        value = value.value if isinstance(value, tirx.Cast) and str(value.ty.dtype) == "float32" else None
    same = value is not None and value.same_as(epilogue.element)
    return ScaledSums(kind, len(places), tuple(reversed(factors))) if same else None


def _factor(expr: Any, places: dict[int, int]) -> int | float | None:
    if isinstance(expr, tirx.FloatImm):
        return float(expr.value)
    return places.get(key(expr)) if isinstance(expr, tirx.Var) else None
