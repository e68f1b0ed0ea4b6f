"""What the GEMM kernels share: operands, a block's tile of the result, the signature, the epilogue.

A is [m, k]; B is [n, k], rows `pitch` elements apart, or [k, n]. Weights are [n, k], rows padded with zeros to whole
vectorized loads, so that both operands are loaded alike along k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from softq.artifact.device.steps import TileForm
from softq.codegen.gpu.dialect.text import HALVES, Text, bits_of, word_type
from softq.codegen.gpu.gemm.fused_epilogue import FusedEpilogue

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


_FILLS_GPU = 128
"""Blocks that fill a large GPU once: an A100 has 108 multiprocessors, an H100 132. Fewer tiles leave some idle."""


@dataclass(frozen=True)
class Tile:
    """The tile of the result that a thread block computes.

    Attributes:
        name: What its kernels' names end with.
        rows: Its rows.
        columns: Its columns.
        threads: Threads per block.
        most_rows: Greatest m that it is for; None if there is no limit.
        least_blocks: The fewest blocks with which it is worth while.
    """

    name: str
    rows: int
    columns: int
    threads: int
    most_rows: int | None
    least_blocks: int


LARGE, SMALL = Tile("128x128", 128, 128, 256, None, _FILLS_GPU), Tile("64x64", 64, 64, 128, None, 0)
"""The tiles of any number of rows."""


class GemmKernel(ABC):
    """The kernel of a product C = A B for one tile.

        void symbol(a, b, [a_zero, b_zero,] c, [operand...,] i64 m, i64 k, i64 n, i64 a_ahead, i64 b_ahead, i64 pitch)

    A is [m, k], B [n, k] or [k, n] (`operands.b_is_kn`) with rows `pitch` elements apart, C [m, n]. `a_ahead` and
    `b_ahead` are the elements from one matrix of a batch to the next; 0 where all products have the same. One block
    per tile per product.
    """

    SHUFFLES: ClassVar[bool] = True
    """Whether lanes of a warp exchange registers."""

    def __init__(self, operands: Operands, tile: Tile, epilogue: FusedEpilogue) -> None:
        self._of, self._tile, self._epilogue, self._text = operands, tile, epilogue, Text()
        self._result_type = word_type(epilogue.result) or operands.result

    @property
    def name(self) -> str:
        """What the kernel's name ends with."""
        return self._tile.name if self._of.aligned else f"{self._tile.name}_any"

    def form(self, symbol: str) -> TileForm:
        """Return for which sizes the kernel is, and how it is started."""
        tile, chunk = self._tile, self._of.chunk if self._of.aligned else 1
        return TileForm(symbol, tile.rows, tile.columns, tile.threads, chunk, tile.most_rows, tile.least_blocks)

    def write(self, symbol: str) -> str:
        """Return the kernel's text."""
        text, tile = self._text, self._tile
        with text.block(self._signature(symbol)):
            if self.SHUFFLES:
                text.line(f"EXCHANGE({tile.threads});")
            self._locate_tile()
            text.line("const i32 lane = THREAD % 32;", "const i32 warp = THREAD / 32;")
            self._write_body()
        return str(text)

    @property
    def _launch_bounds(self) -> str:
        return "KERNEL"

    @abstractmethod
    def _write_body(self) -> None: ...

    def _signature(self, symbol: str) -> str:
        left, right = self._of.memory_types
        names = [f"const GLOBAL {left} *RESTRICT a", f"const GLOBAL {right} *RESTRICT b"]
        if self._of.integers:
            names += [f"const GLOBAL {left} *RESTRICT a_zero", f"const GLOBAL {right} *RESTRICT b_zero"]
        names += [f"GLOBAL {self._result_type} *RESTRICT c", *self._epilogue.parameters()]
        names += [f"i64 {name}" for name in ("m", "k", "n", "a_ahead", "b_ahead", "pitch")]
        return f"{self._launch_bounds}({self._tile.threads}) {symbol}({', '.join(names)})"

    def _locate_tile(self) -> None:
        """Write which tile of which product the block has: `batch`, `top` and `first`; its operands `mine`, `theirs`.

        Blocks of one panel of columns are consecutive: what they read of the right operand is in the cache.
        """
        rows, columns, (left, right) = self._tile.rows, self._tile.columns, self._of.memory_types
        self._text.line(
            f"const i64 down = (m + {rows - 1}) / {rows};",
            f"const i64 across = (n + {columns - 1}) / {columns};",
            "const i64 batch = GROUP / (down * across);",
            "const i64 within = GROUP % (down * across);",
            f"const i64 top = within % down * {rows};",
            f"const i64 first = within / down * {columns};",
            f"const GLOBAL {left} *mine = a + batch * a_ahead;",
            f"const GLOBAL {right} *theirs = b + batch * b_ahead;",
        )

    def _apply_epilogue(self, element: str, at: str, column: str) -> str:
        """Write the epilogue of an element of the result; return it as it is stored."""
        value, kind = self._epilogue.value(self._text, element, at, column), self._epilogue.result or self._of.left
        return f"(u16)to_{kind}({value})" if kind in HALVES else f"({self._result_type})({value})"

    def _write_element(self, element: str) -> None:
        """Write an element of the result at `row` and `column`, unless that lies outside."""
        with self._text.block("if (row < m && column < n)"):
            self._text.line("const i64 there = (batch * m + row) * n + column;")
            self._text.line(f"c[there] = {self._apply_epilogue(element, 'there', 'column')};")
