"""Transposition of squares of a vector's lanes: elements of pairs of rows change places, at growing distances."""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.tiles import number, vector
from softq.codegen.cpu.rows.tir import shuffle


class Square:
    """The emitter of a square of `lanes` x `lanes` numbers, a power of two, allocated where it is made.

    Attributes:
        columns: The columns of the last square that was transposed, one behind another.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._rows, self.columns = (T.alloc_buffer((lanes * lanes,), "float32", scope="local") for _ in range(2))

    def transpose(self, source: Any, start: Any, stride: int) -> None:
        """Emit the transposition of a square whose rows are `stride` numbers apart, from a place of a buffer on."""
        lanes, half = self._lanes, 1
        for i in range(lanes):
            T.buffer_store(self._rows, source[vector(start + number(i * stride), lanes)], [self._row(i)])
        while half < lanes:
            for i in (row for row in range(lanes) if not row & half):
                pair = self._rows[self._row(i)], self._rows[self._row(i + half)]
                upper = [lanes + lane - half if lane & half else lane for lane in range(lanes)]
                lower = [lanes + lane if lane & half else lane + half for lane in range(lanes)]
                T.buffer_store(self.columns, shuffle(pair, upper), [self._row(i)])
                T.buffer_store(self.columns, shuffle(pair, lower), [self._row(i + half)])
            half *= 2
            if half < lanes:
                for i in range(lanes):
                    T.buffer_store(self._rows, self.columns[self._row(i)], [self._row(i)])

    def _row(self, i: int) -> Any:
        return vector(number(i * self._lanes), self._lanes)
