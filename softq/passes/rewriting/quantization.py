"""QuantizeLinear and DequantizeLinear of 8-bit integers with one constant scale: what passes over them share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from softq.graph.queries import constant, operand

EIGHT_BITS = (ir.DataType.INT8, ir.DataType.UINT8)

_COLUMNS = 1 << 20
"""Bytes of the scales that are read: as many columns as a matrix may have."""

_LEAST, _GREATEST = np.finfo(np.float32).tiny, np.float32(2.0**100)
"""Scales whose multiples by a code are exact to 2^-24."""


@dataclass(frozen=True)
class Quantization:
    """What codes stand for: (code - zero) * scale.

    Attributes:
        scale: Normal float32 numbers between 0 and 2^100: one, or one for each element of an axis.
        zero: The same zero point for all.
        dtype: The type of the codes.
    """

    scale: NDArray[np.float32]
    zero: int
    dtype: ir.DataType

    @property
    def reach(self) -> int:
        """The greatest absolute value of a code without its zero point."""
        low = -128 if self.dtype is ir.DataType.INT8 else 0
        return max(self.zero - low, low + 255 - self.zero)

    def same(self, other: Quantization) -> bool:
        """Return whether codes of the one are codes of the other."""
        return (self.zero, self.dtype) == (other.zero, other.dtype) and np.array_equal(self.scale, other.scale)


def read_quantization(node: ir.Node, axis: int = -1) -> Quantization | None:
    """Return what the codes of a QuantizeLinear or DequantizeLinear stand for, if it is float32 and of this form.

    Args:
        node: The node.
        axis: The axis that scales may be of, counted from the end.
    """
    codes = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    real = node.inputs[0] if node.op_type == "QuantizeLinear" else node.outputs[0]
    scale, zero = constant(operand(node, 1), _COLUMNS), constant(operand(node, 2), _COLUMNS)
    if codes is None or real is None or scale is None or scale.dtype != np.float32 or scale.size == 0:
        return None
    if operand(node, 2) is not None and zero is None:
        return None
    if node.attributes.get_int("block_size", 0) or not bool(((scale >= _LEAST) & (scale <= _GREATEST)).all()):
        return None
    points = {0} if zero is None else set(map(int, zero.ravel()))
    dtype = codes.dtype if zero is None else ir.DataType.from_numpy(zero.dtype)
    if len(points) != 1 or dtype is None or dtype not in EIGHT_BITS:
        return None
    if scale.size > 1:
        rank = None if codes.shape is None else len(codes.shape)
        own = node.attributes.get_int("axis", 1)
        if scale.ndim != 1 or rank is None or own not in (axis, rank + axis):
            return None
    return Quantization(scale if scale.size > 1 else scale.reshape(()), points.pop(), dtype)


GREATEST_SUM = (1 << 31) - 1
"""The greatest sum of products of integers."""


def unit_of(a: Quantization, b: Quantization) -> NDArray[np.float32] | None:
    """Return what a product of two codes stands for, if that is a normal float32."""
    unit = np.multiply(a.scale, b.scale, dtype=np.float32)
    normal = bool((unit >= np.finfo(np.float32).tiny).all() and np.isfinite(unit).all())
    return np.asarray(unit, np.float32) if normal else None


def add_number(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """Return a new initializer."""
    value = ir.val(name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value
