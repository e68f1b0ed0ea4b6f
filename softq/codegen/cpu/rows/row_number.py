"""The number of a row on each of the three leading axes (outer, heads, queries)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from tvm import tirx
from tvm.ir import Expr
from tvm.script.ir_builder import tirx as script

from softq.codegen.cpu.rows.integers import long_division
from softq.codegen.cpu.rows.processor import Processor
from softq.codegen.cpu.rows.tir import Local


class RowNumber:
    """Three counters that go along with the rows; only the first row is divided."""

    def __init__(self, processor: Processor, first: Expr, heads: Expr, queries: Expr) -> None:
        self._processor = processor
        self._index = processor.index
        self._limits = (heads, queries)
        block = self._local(self._divide(first, queries))
        self.query = self._local(tirx.Sub(first, tirx.Mul(block.get(), queries)))
        self.outer = self._local(self._divide(block.get(), heads))
        self.head = self._local(tirx.Sub(block.get(), tirx.Mul(self.outer.get(), heads)))

    def dot(self, strides: Sequence[Expr]) -> Expr:
        """Return the position of the row in an array with these strides."""
        counters = (self.outer, self.head, self.query)
        return reduce(tirx.Add, [tirx.Mul(c.get(), s) for c, s in zip(counters, strides, strict=True)])

    def next(self) -> None:
        """Go to the next row."""
        zero, one = tirx.const(0, self._index), tirx.const(1, self._index)
        heads, queries = self._limits
        self.query.set(tirx.Add(self.query.get(), one))
        with script.If(tirx.EQ(self.query.get(), queries)), script.Then():
            self.query.set(zero)
            self.head.set(tirx.Add(self.head.get(), one))
            with script.If(tirx.EQ(self.head.get(), heads)), script.Then():
                self.head.set(zero)
                self.outer.set(tirx.Add(self.outer.get(), one))

    def _local(self, x: Expr) -> Local:
        return Local.of(x, self._index, 1)

    def _divide(self, a: Expr, b: Expr) -> Expr:
        if self._processor.is_32_bit:
            # Not every such processor divides; the compiler's library would be called.
            return long_division(a, b, self._index, 1)
        return script.truncdiv(a, b)
