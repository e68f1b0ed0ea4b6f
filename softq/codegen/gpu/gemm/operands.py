"""What the kernels of products have in common: their parameters, their place in the result, what they read and write.

A left operand is [m, k]; a right one [n, k], rows `pitch` elements apart, or [k, n]. Weights are of the first form,
their rows padded with zeros to whole pieces of 16 bytes; so what is read along k is the same for both operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softq.codegen.gpu.dialect.text import Text

HALF_KINDS = ("f16", "bf16")
BYTE_KINDS = ("i8", "u8")

PIECE = 16
"""Bytes of one access."""

BYTES: Mapping[str, int] = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1}
"""Bytes of an element."""


@dataclass(frozen=True)
class Operands:
    """What a product is of.

    Attributes:
        left: Type of the left operand: f32, f16, bf16, i8 or u8.
        right: Type of the right one: the same, or the other one of a byte.
        turned: Whether the right operand is [k, n].
        aligned: Whether k and the distance between rows are multiples of `chunk`.
    """

    left: str
    right: str
    turned: bool
    aligned: bool

    @property
    def chunk(self) -> int:
        """Elements of one access."""
        return PIECE // BYTES[self.left]

    @property
    def integers(self) -> bool:
        """Whether sums are of integers, each less its operand's zero point."""
        return self.left in BYTE_KINDS

    @property
    def held(self) -> tuple[str, str]:
        """The types of the operands' elements in memory."""
        left, right = ("u16" if kind in HALF_KINDS else kind for kind in (self.left, self.right))
        return left, right

    @property
    def result(self) -> str:
        """The type of the result's elements in memory."""
        return "i32" if self.integers else self.held[0]


def padded(array: NDArray[np.generic], transposed: bool) -> NDArray[np.generic]:
    """Return a weight [k, n] (`transposed`: [n, k]) as [n, k], rows of whole pieces, zeros behind them."""
    matrix = array if transposed else array.T
    chunk = PIECE // matrix.dtype.itemsize
    result = np.zeros((matrix.shape[0], -(-matrix.shape[1] // chunk) * chunk), matrix.dtype)
    result[:, : matrix.shape[1]] = matrix
    return result


def head(
    symbol: str, operands: Operands, threads: int, more: str = "", kernel: str = "KERNEL", result: str = ""
) -> str:
    """Return the first line of a kernel, `kernel` the word that it begins with, `result` the type of `c`.

        void symbol(a, b, [a_zero, b_zero,] c, [more...], i64 m, i64 k, i64 n, i64 a_ahead, i64 b_ahead, i64 pitch)

    `a_ahead` and `b_ahead` are the elements from one matrix to the next; 0 where all products have the same.
    """
    left, right = operands.held
    names = [f"const GLOBAL {left} *RESTRICT a", f"const GLOBAL {right} *RESTRICT b"]
    if operands.integers:
        names += [f"const GLOBAL {left} *RESTRICT a_zero", f"const GLOBAL {right} *RESTRICT b_zero"]
    names.append(f"GLOBAL {result or operands.result} *RESTRICT c")
    numbers = ", ".join(f"i64 {name}" for name in ("m", "k", "n", "a_ahead", "b_ahead", "pitch"))
    return f"{kernel}({threads}) {symbol}({', '.join(names)}{more}, {numbers})"


def place(text: Text, operands: Operands, rows: int, columns: int) -> None:
    """Write which tile of which matrix the block has: `batch`, `top` and `first`, and its operands, `mine`, `theirs`.

    Blocks of one panel of columns follow each other: what they read of the right operand is in the cache.
    """
    text.line(f"const i64 down = (m + {rows - 1}) / {rows};")
    text.line(f"const i64 across = (n + {columns - 1}) / {columns};")
    text.line("const i64 batch = GROUP / (down * across);")
    text.line("const i64 within = GROUP % (down * across);")
    text.line(f"const i64 top = within % down * {rows};")
    text.line(f"const i64 first = within / down * {columns};")
    left, right = operands.held
    text.line(f"const GLOBAL {left} *mine = a + batch * a_ahead;")
    text.line(f"const GLOBAL {right} *theirs = b + batch * b_ahead;")
