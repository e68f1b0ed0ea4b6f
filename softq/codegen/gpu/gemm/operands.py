"""The operands of a GEMM: A is [m, k]; B is [n, k], rows `pitch` elements apart, or [k, n].

Weights are [n, k], rows padded with zeros to whole vectorized loads, so that both operands are loaded alike along k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softq.codegen.gpu.dialect.text import bits_of, word_type

BYTE_KINDS = ("i8", "u8")

LOAD_BYTES = 16
"""Bytes of a vectorized load."""

ONES = "0x1010101u"
"""Four bytes of 1: their dot product with four bytes is the sum of those."""


@dataclass(frozen=True)
class Operands:
    """Types and layout of the operands.

    Attributes:
        left: Element type of A: f32, f16, bf16, i8 or u8.
        right: Element type of B: the same, or the other 8-bit type.
        b_is_kn: Whether B is [k, n].
        aligned: Whether k and the pitch of B are multiples of `chunk`: rows begin at multiples of 16 bytes.
    """

    left: str
    right: str
    b_is_kn: bool
    aligned: bool

    @property
    def chunk(self) -> int:
        """Elements of a vectorized load."""
        return 8 * LOAD_BYTES // bits_of(self.left)

    @property
    def integers(self) -> bool:
        """Whether sums are of integers, each less its operand's zero point."""
        return self.left in BYTE_KINDS

    @property
    def memory_types(self) -> tuple[str, str]:
        """The types of A's and B's elements in memory."""
        return word_type(self.left), word_type(self.right)

    @property
    def result(self) -> str:
        """The type of the result's elements in memory."""
        return "i32" if self.integers else self.memory_types[0]

    def multiply_add(self, x: str, y: str, total: str) -> str:
        """Return a sum and the product of two words: of two f32, or of four 8-bit integers each."""
        if self.integers:
            return f"DOT4({self.left}, {self.right}, {x}, {y}, {total})"
        return f"fma(FLOAT({x}), FLOAT({y}), {total})"


def pad_rows(array: NDArray[np.generic], transposed: bool) -> NDArray[np.generic]:
    """Return a weight [k, n] (`transposed`: [n, k]) as [n, K], K >= k a multiple of 16 bytes, filled with zeros."""
    matrix = array if transposed else array.T
    chunk = LOAD_BYTES // matrix.dtype.itemsize
    result = np.zeros((matrix.shape[0], -(-matrix.shape[1] // chunk) * chunk), matrix.dtype)
    result[:, : matrix.shape[1]] = matrix
    return result
