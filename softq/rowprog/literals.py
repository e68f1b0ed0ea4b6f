"""Python numbers as the element types hold them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from softq.errors import UsageError
from softq.rowprog.program import Number
from softq.rowprog.types import DType


def exact(value: Number, dtype: DType, *, rounding: bool, where: str = "") -> Number:
    """Return the number as the type holds it.

    Args:
        value: The number.
        dtype: The element type.
        rounding: Whether f32 takes the nearest f32 of a number that it does not hold.
        where: What an error's message begins with.

    Raises:
        UsageError: the type does not hold the number.
    """
    if dtype is DType.BOOL:
        if not isinstance(value, (bool, np.bool_)):
            raise UsageError(f"{where}{value!r} is not a bool")
        return bool(value)
    if isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{where}{value!r} is a bool, expected a number of type {dtype.value}")
    if dtype.is_float:
        if isinstance(value, int) and abs(value) > DType.U64.high:
            raise UsageError(f"{where}{value!r} is outside every integer type; write it as a float")
        with np.errstate(over="ignore"):
            held = float(np.float32(value))
        if math.isfinite(held) and not rounding and Fraction(held) != Fraction(value):
            raise UsageError(f"{where}{value!r} is not an f32 number; use const(), which rounds")
        if math.isinf(held) and math.isfinite(value):
            raise UsageError(f"{where}{value!r} is outside f32")
        return held
    if value != value or math.isinf(value) or int(value) != value:
        raise UsageError(f"{where}{value!r} is not an integer, expected {dtype.value}")
    if not dtype.low <= int(value) <= dtype.high:
        raise UsageError(f"{where}{value!r} is outside {dtype.value}, which holds {dtype.low} to {dtype.high}")
    return int(value)
