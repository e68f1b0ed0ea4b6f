"""Element types of the row-program language, and Python numbers as they hold them."""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction
from functools import cached_property

import numpy as np

from softq.errors import UsageError

Number = int | float | bool


class DType(Enum):
    """An element type; the value is the name that programs print."""

    F32 = "f32"
    I8 = "i8"
    U8 = "u8"
    I16 = "i16"
    U16 = "u16"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    U64 = "u64"
    BOOL = "bool"

    @classmethod
    def named(cls, name: str) -> DType | None:
        """Return the type that a name means, the language's (i8) or NumPy's (int8); None if there is none."""
        return next((dtype for dtype in cls if name in (dtype.value, dtype.numpy.name)), None)

    @property
    def is_integer(self) -> bool:
        """Whether this is one of the eight integer types."""
        return self.value[0] in "iu"

    @property
    def is_float(self) -> bool:
        """Whether this is f32."""
        return self is DType.F32

    @property
    def is_signed(self) -> bool:
        """Whether negative values exist."""
        return self.value[0] in "if"

    @property
    def bits(self) -> int:
        """Width in bits; a bool has 1."""
        return 1 if self is DType.BOOL else int(self.value[1:])

    @property
    def low(self) -> int:
        """Least value of an integer type."""
        assert self.is_integer, self
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def high(self) -> int:
        """Greatest value of an integer type."""
        assert self.is_integer, self
        return (1 << (self.bits - self.is_signed)) - 1

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type with the same values."""
        return np.dtype("bool" if self is DType.BOOL else f"{self.value[0]}{self.bits // 8}")


class Kind(Enum):
    """How many values there are: one per element of the row, one per row, or a lookup table."""

    ROW = "row"
    SCALAR = "scalar"
    TABLE = "table"


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
