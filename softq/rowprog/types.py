"""Element types of the row-program language."""

from __future__ import annotations

from enum import Enum
from functools import cached_property

import numpy as np


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
        return np.dtype(
            {"f": "float", "i": "int", "u": "uint", "b": "bool"}[self.value[0]]
            + ("" if self is DType.BOOL else str(self.bits))
        )


class Kind(Enum):
    """How many values there are: one per element of the row, one per row, or a lookup table."""

    ROW = "row"
    SCALAR = "scalar"
    TABLE = "table"
