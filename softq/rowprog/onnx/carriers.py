"""The types that ONNX functions compute in.

onnxruntime lacks most operators for 8 and 16 bits and for u32 (Min, Max, Where, ReduceMax, ReduceSum, ...) and has all
of them for int32, int64, float and bool. A value is therefore carried in the narrowest of these that holds its proven
interval: legal because range analysis has proved that nothing wraps in the type that the program names.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import onnx_ir as ir

from softq.errors import RefusalError
from softq.rowprog.types import DType


class Carrier(Enum):
    """A type to compute in; the value is ONNX's name of it."""

    FLOAT = ir.DataType.FLOAT
    INT32 = ir.DataType.INT32
    INT64 = ir.DataType.INT64
    BOOL = ir.DataType.BOOL

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of the same name."""
        return np.dtype(self.value.numpy())

    @property
    def bits(self) -> int:
        """Width of a number in bits."""
        return 64 if self is Carrier.INT64 else 32

    @property
    def unsigned(self) -> ir.DataType:
        """The unsigned type of the same width, for shifts."""
        return ir.DataType.UINT64 if self is Carrier.INT64 else ir.DataType.UINT32


def carrier(dtype: DType, low: float, high: float) -> Carrier:
    """Return the type that carries values of `dtype` in [low, high].

    Raises:
        RefusalError: the values are u64 beyond what int64 holds.
    """
    if dtype is DType.BOOL:
        return Carrier.BOOL
    if dtype.is_float:
        return Carrier.FLOAT
    if DType.I32.low <= low and high <= DType.I32.high:
        return Carrier.INT32
    if high > DType.I64.high:
        raise RefusalError(
            f"values of {dtype.value} up to {high} cannot be computed in ONNX, where int64 is the widest"
        )
    return Carrier.INT64
