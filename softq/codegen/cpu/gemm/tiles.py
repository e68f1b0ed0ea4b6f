"""Register tiles: the innermost part of every product of float32 matrices.

A tile holds `rows` x `vectors` vectors of the result in registers and goes along the inner dimension once. Every
element of the result is one chain of multiply-adds in the order of the inner dimension, whatever the tile: so results
do not depend on its shape, nor on how rows and columns are divided into tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.rows.tir import broadcast


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
        return Tile(6, 4, 1) if machine.in_c and machine.fused else Tile(4, 4, 1)
    lanes = machine.lanes(32)
    # Of 32 registers 8 x 3 + 3 are in use, of 16 4 x 3 + 3 or, where there is no multiply by a broadcast load, 1 more.
    return Tile(8, 3, lanes) if machine.vectors >= 32 else Tile(4, 3, lanes)


def tile_of_block(machine: Cpu) -> Tile:
    """Return the largest tile: its columns are those of a panel.

    Six rows, because their addresses fit the general registers: of eight some are reloaded in every step.
    """
    if not machine.vector_bytes:
        return Tile(6, 4, 1) if machine.in_c and machine.fused else Tile(4, 4, 1)
    return Tile(6, 4 if machine.vectors >= 32 else 2, machine.lanes(32))


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

    def __init__(self, tile: Tile, dtype: str = "float32") -> None:
        self._tile, self._dtype = tile, dtype
        self._buffer = T.alloc_buffer((tile.rows * tile.columns,), dtype, scope="local")

    def _at(self, row: int, v: int) -> Any:
        return vector(number((row * self._tile.vectors + v) * self._tile.lanes), self._tile.lanes)

    def get(self, row: int, v: int) -> Any:
        """Return a vector of a row."""
        return self._buffer[self._at(row, v)]

    def set(self, row: int, v: int, value: Any) -> None:
        """Overwrite a vector of a row."""
        T.buffer_store(self._buffer, value, [self._at(row, v)])

    def clear(self, rows: int, vectors: int) -> None:
        """Set the first vectors of the first rows to zero."""
        for row in range(rows):
            for v in range(vectors):
                self.set(row, v, broadcast(tirx.FloatImm("float32", 0.0), self._tile.lanes))

    def add(self, other: Sums, rows: int, vectors: int) -> None:
        """Add the first vectors of the first rows of other sums."""
        for row in range(rows):
            for v in range(vectors):
                self.set(row, v, self.get(row, v) + other.get(row, v))

    def add_products(self, rows: int, a: Matrix, b: Matrix, steps: Any, vectors: int) -> None:
        """Add the product of `rows` rows of `a` and the first columns of `b`, over `steps` of the inner axis."""
        lanes = self._tile.lanes
        with T.serial(number(0), steps) as step:
            values = [b.load(step, number(v * lanes), lanes) for v in range(vectors)]
            for row in range(rows):
                factor = broadcast(a.load(number(row), step), lanes)
                for v, value in enumerate(values):
                    self.set(row, v, self.get(row, v) + factor * value)

    def load(self, rows: int, c: Matrix, width: Any, vectors: int) -> None:
        """Take up the first rows as `store` wrote them; of columns beyond `width` any numbers."""
        self._move(rows, c, width, vectors, to_memory=False)

    def store(self, rows: int, c: Matrix, width: Any, vectors: int) -> None:
        """Write `width` columns of the first rows, for which all vectors but the last are full."""
        self._move(rows, c, width, vectors, to_memory=True)

    def _move(self, rows: int, c: Matrix, width: Any, vectors: int, *, to_memory: bool) -> None:
        lanes, last = self._tile.lanes, vectors - 1
        skipped = number(last * lanes)

        def move(other: Matrix, vectors: range, skipped: int = 0) -> None:
            for row in range(rows):
                for v in vectors:
                    at = number(row), number(v * lanes - skipped)
                    if to_memory:
                        other.store(self.get(row, v), *at, lanes)
                    else:
                        self.set(row, v, other.load(*at, lanes))

        move(c, range(last))
        with T.If(number(vectors * lanes) <= width):
            with T.Then():
                move(c, range(last, vectors))
            with T.Else():
                edge = self._edge(rows)
                if to_memory:
                    move(edge, range(last, vectors), last * lanes)
                with T.serial(number(0), number(rows)) as row, T.serial(skipped, width) as column:
                    if to_memory:
                        c.store(edge.load(row, column - skipped), row, column)
                    else:
                        edge.store(c.load(row, column), row, column - skipped)
                if not to_memory:
                    move(edge, range(last, vectors), last * lanes)

    def _edge(self, rows: int) -> Matrix:
        """Return other memory for the last vectors: what is addressed by a variable is not held in registers."""
        lanes = self._tile.lanes
        return Matrix(T.alloc_buffer((rows * lanes,), self._dtype, scope="local"), number(0), number(lanes))

    def store_row_by_row(
        self, rows: int, c: Matrix, width: Any, vectors: int, store: Callable[..., None] = Matrix.store
    ) -> None:
        """Write as `store`, the last vectors in a loop over the rows; less code where writing is much of it.

        Args:
            rows: How many rows.
            c: The result.
            width: How many columns.
            vectors: How many vectors hold them.
            store: Writes numbers to a row and a column on of a matrix, as many as are said; by default as they are.
        """
        lanes, last, zero = self._tile.lanes, vectors - 1, number(0)
        skipped, edge = number(last * lanes), self._edge(rows)
        for row in range(rows):
            for v in range(last):
                store(c, self.get(row, v), number(row), number(v * lanes), lanes)
            edge.store(self.get(row, last), number(row), zero, lanes)
        with T.serial(zero, number(rows)) as row, T.If(number(vectors * lanes) <= width):
            with T.Then():
                store(c, edge.load(row, zero, lanes), row, skipped, lanes)
            with T.Else(), T.serial(zero, width - skipped) as column:
                store(c, edge.load(row, column), row, skipped + column, 1)


def vectors_of(tile: Tile, width: Any) -> Iterator[int]:
    """Emit a branch for each number of vectors that `width` columns may take; yield the number inside of it."""
    for vectors in range(1, tile.vectors + 1):
        least, most = number((vectors - 1) * tile.lanes), number(vectors * tile.lanes)
        with T.If(least < width), T.Then(), T.If(width <= most), T.Then():
            yield vectors


def block_tiles(tile: Tile, width: Any, begin: Any, end: Any, done: Any) -> Iterator[tuple[int, int, Any]]:
    """Emit loops over the tiles of rows and `width` columns; yield in each its rows and vectors, and its first row.

    The highest tiles come first, until no row is left. A single row has too few sums at once to keep the processor
    busy, so that it should be the last one only. `done` is memory for the number of a row.
    """
    zero = number(0)
    for vectors in vectors_of(tile, width):
        T.buffer_store(done, begin, [zero])
        for rows in (tile.rows, *(height for height in (4, 2, 1) if height < tile.rows)):
            with T.serial(zero, tirx.truncdiv(end - done[zero], number(rows))):
                yield rows, vectors, done[zero]
                T.buffer_store(done, done[zero] + number(rows), [zero])


def rows_of(item: Any, rows: Any, block: Any) -> tuple[Any, Any, Any, Any]:
    """Return what a work item is, where every matrix has so many rows, in blocks.

    Args:
        item: Its number, over matrices and their blocks.
        rows: Rows of a matrix.
        block: Rows of a block; the last one of a matrix may have fewer.

    Returns:
        The number of the matrix, the block's first row in it and in all matrices together, and how many rows it has.
    """
    blocks = ceil_divide(rows, block)
    matrix, inside = tirx.truncdiv(item, blocks), tirx.truncmod(item, blocks) * block
    return matrix, inside, matrix * rows + inside, tirx.min(block, rows - inside)


def matrix_start(matrix: Any, heads: Any, outer: Any, inner: Any) -> Any:
    """Return where a matrix begins, which is that of a head: heads are `inner` apart, all heads together `outer`."""
    return tirx.truncdiv(matrix, heads) * outer + tirx.truncmod(matrix, heads) * inner


def number(value: int) -> Any:
    """Return a constant position."""
    return tirx.IntImm("int64", value)


def vector(start: Any, lanes: int) -> Any:
    """Return consecutive positions."""
    return start if lanes == 1 else tirx.Ramp(start, number(1), lanes)


@contextmanager
def positions(begin: Any, end: Any) -> Generator[Any]:
    """Open a loop; its variable starts at 0, because of another start TVM makes copies, of memory too."""
    with T.serial(number(0), end - begin) as i:
        yield begin + i


def ceil_divide(a: Any, b: int | Any) -> Any:
    """Return how many parts of size `b` cover `a`, as a position."""
    return tirx.truncdiv(a + number(b - 1), number(b)) if isinstance(b, int) else tirx.truncdiv(a + b - number(1), b)


def call(symbol: str, *arguments: Any) -> None:
    """Emit the call of another kernel."""
    T.evaluate(T.call_extern("void", symbol, *arguments))
