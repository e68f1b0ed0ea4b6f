"""Register tiles: the innermost part of every product of float32 matrices.

A tile holds `rows` x `vectors` vectors of the result in registers and goes along the inner dimension once. Every
element of the result is one chain of multiply-adds in the order of the inner dimension, whatever the tile: so results
do not depend on its shape, nor on how rows and columns are divided into tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu


@dataclass(frozen=True)
class Tile:
    """What is held in registers: `rows` x `vectors` vectors of `lanes` numbers."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes


def tile_of(machine: Cpu) -> Tile:
    """Return the tile for a machine: accumulators fill its registers but for one row of the right operand."""
    if not machine.vector_bytes:
        return Tile(4, 4, 1)
    lanes = machine.lanes(32)
    # Of 32 registers 8 x 3 + 3 are in use, of 16 4 x 3 + 3 or, where there is no multiply by a broadcast load, 1 more.
    return Tile(8, 3, lanes) if machine.vectors >= 32 else Tile(4, 3, lanes)


@dataclass(frozen=True)
class Matrix:
    """A matrix in memory: element (i, j) stands at `start + i * stride + j` of a buffer."""

    buffer: Any
    start: Any
    stride: Any

    def at(self, row: Any, column: Any, lanes: int = 1) -> Any:
        """Return the position of an element, or of as many as a vector has, from that one on."""
        return vector(self.start + row * self.stride + column, lanes)

    def load(self, row: Any, column: Any, lanes: int = 1) -> Any:
        """Return an element or a vector of them."""
        return self.buffer[self.at(row, column, lanes)]

    def store(self, value: Any, row: Any, column: Any, lanes: int = 1) -> None:
        """Write an element or a vector of them."""
        T.buffer_store(self.buffer, value, [self.at(row, column, lanes)])


class Sums:
    """The emitter of a tile's accumulators, which are allocated where it is made."""

    def __init__(self, tile: Tile) -> None:
        self._tile = tile
        self._buffer = T.alloc_buffer((tile.rows * tile.columns,), "float32", scope="local")

    def _at(self, row: int, vector_number: int) -> Any:
        return vector(number((row * self._tile.vectors + vector_number) * self._tile.lanes), self._tile.lanes)

    def clear(self, rows: int, vectors: int | None = None) -> None:
        """Set the first rows, or the first vectors of them, to zero."""
        for row in range(rows):
            for v in range(vectors or self._tile.vectors):
                zero = broadcast(tirx.FloatImm("float32", 0.0), self._tile.lanes)
                T.buffer_store(self._buffer, zero, [self._at(row, v)])

    def add_products(self, rows: int, a: Matrix, b: Matrix, steps: Any, vectors: int | None = None) -> None:
        """Add the product of `rows` rows of `a` and the first columns of `b`, over `steps` of the inner axis."""
        lanes = self._tile.lanes
        with T.serial(number(0), steps) as step:
            values = [b.load(step, number(v * lanes), lanes) for v in range(vectors or self._tile.vectors)]
            for row in range(rows):
                factor = broadcast(a.load(number(row), step), lanes)
                for v, value in enumerate(values):
                    at = self._at(row, v)
                    T.buffer_store(self._buffer, self._buffer[at] + factor * value, [at])

    def load(self, rows: int, c: Matrix, width: Any, vectors: int | None = None) -> None:
        """Take up the first rows as `store` wrote them; of columns beyond `width` any numbers."""
        self._move(rows, c, width, vectors, to_memory=False)

    def store(self, rows: int, c: Matrix, width: Any, vectors: int | None = None) -> None:
        """Write the first rows; of a tile that reaches over the end, the `width` columns that the result has.

        Where the number of vectors is given, all but the last are full.
        """
        self._move(rows, c, width, vectors, to_memory=True)

    def _move(self, rows: int, c: Matrix, width: Any, vectors: int | None, *, to_memory: bool) -> None:
        lanes, last = self._tile.lanes, vectors or self._tile.vectors
        whole = 0 if vectors is None else vectors - 1

        def move(first: int, other: Matrix, skipped: int, until: int) -> None:
            for row in range(rows):
                for v in range(first, until):
                    here, at = self._at(row, v), (number(row), number(v * lanes - skipped))
                    if to_memory:
                        other.store(self._buffer[here], *at, lanes)
                    else:
                        T.buffer_store(self._buffer, other.load(*at, lanes), [here])

        def elements(other: Matrix, skipped: int) -> None:
            with T.serial(number(0), number(rows)) as row, T.serial(number(skipped), width) as column:
                if to_memory:
                    c.store(other.load(row, column - number(skipped)), row, column)
                else:
                    other.store(c.load(row, column), row, column - number(skipped))

        move(0, c, 0, whole)
        with T.If(number(last * lanes) <= width):
            with T.Then():
                move(whole, c, 0, last)
            with T.Else():
                # By way of other memory: what is addressed by a variable is not held in registers.
                skipped, size = whole * lanes, (last - whole) * lanes
                edge = Matrix(T.alloc_buffer((rows * size,), "float32", scope="local"), number(0), number(size))
                if to_memory:
                    move(whole, edge, skipped, last)
                    elements(edge, skipped)
                else:
                    elements(edge, skipped)
                    move(whole, edge, skipped, last)


def number(value: int) -> Any:
    """Return a constant position."""
    return tirx.IntImm("int64", value)


def vector(start: Any, lanes: int) -> Any:
    """Return consecutive positions."""
    return start if lanes == 1 else tirx.Ramp(start, number(1), lanes)


def broadcast(value: Any, lanes: int) -> Any:
    """Return a value in all lanes."""
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def ceil_divide(a: Any, b: int | Any) -> Any:
    """Return how many parts of size `b` cover `a`, as a position."""
    return tirx.truncdiv(a + number(b - 1), number(b)) if isinstance(b, int) else tirx.truncdiv(a + b - number(1), b)


def call(symbol: str, *arguments: Any) -> None:
    """Emit the call of another kernel."""
    T.evaluate(T.call_extern("void", symbol, *arguments))
