"""Products on ordinary cores: of float32, and of bytes four at a time, in tiles of the result that a block has.

A word is a number, or four bytes that are next to each other along k, whose products `DOT4` adds up. A thread has 8 x 8
or 8 x 4 sums in registers, in groups of four rows and columns, so that shared memory is read 16 bytes at a time: of a
tile of 128 x 128 it reads 16 words for 64 multiply-adds. The next 8 words of each row and column are on their way from
memory meanwhile, and are written beside those in use; a barrier for every 8 words.

Each sum is one chain in the order of k. Source of the form: V. Volkov, J. Demmel, "Benchmarking GPUs to Tune Dense
Linear Algebra", SC 2008; the groups of four and the doubled buffer are those of NVIDIA's CUTLASS (SIMT kernels).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from softq.codegen.gpu.dialect.text import Text
from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, Finish, four, result_of, stored
from softq.codegen.gpu.gemm.operands import Operands, head, place

Block = contextlib.AbstractContextManager[None]

_DEEP = 8
"""Words of a row or column that are in shared memory at a time."""

_PAD = 4
"""Words behind them, so that a warp writes a column of 16 rows to different banks."""

_ONES = 0x01010101
"""Four bytes of 1: their products with four bytes are those, and add up to their sum."""


@dataclass(frozen=True)
class WordTile:
    """The part of the result that a block has: `size` x `size`, each thread 8 rows and `columns` columns."""

    name: str
    size: int
    columns: int

    @property
    def threads(self) -> int:
        """Threads of a block: each reads 16 bytes of either operand at a time."""
        return 2 * self.size


LARGE, SMALL = WordTile("128x128", 128, 8), WordTile("64x64", 64, 4)


def word_kernel(symbol: str, operands: Operands, tile: WordTile, finish: Finish = PLAIN) -> str:
    """Return the kernel, its parameters those of `operands.head`; a block for each tile of each product."""
    text = Text()
    _Writer(operands, tile, finish, text).write(symbol)
    return str(text)


class _Writer:
    def __init__(self, operands: Operands, tile: WordTile, finish: Finish, text: Text) -> None:
        self._of, self._tile, self._finish, self._text = operands, tile, finish, text
        self._row_groups, self._column_groups = 2, tile.columns // 4
        self._per = 4 if operands.integers else 1  # elements of a word

    def write(self, symbol: str) -> None:
        text, size = self._text, self._tile.size
        kernel = "KERNEL_OF_TWO" if size == LARGE.size else "KERNEL"
        result = result_of(self._of, self._finish)
        line = head(symbol, self._of, self._tile.threads, self._finish.more, kernel, result)
        with text.block(line):
            place(text, self._of, size, size)
            text.line("const i32 lane = THREAD % 32;")
            text.line("const i32 warp = THREAD / 32;")
            # Of the threads of a warp 4 are below and 8 beside each other, of warps 2 beside each other.
            text.line("const i32 column = (warp % 2 * 8 + lane % 8) * 4;")
            text.line("const i32 row = (warp / 2 * 4 + lane / 8) * 4;")
            for name in ("left", "right"):
                text.line(f"SHARED uint4 {name}_tiles[2][{_DEEP}][{(size + _PAD) // 4}];")
            sums = "i32" if self._of.integers else "f32"
            text.line(f"{sums} sums[8][{self._tile.columns}];")
            with self._each("i", 8), self._each("j", self._tile.columns):
                text.line("sums[i][j] = 0;")
            if self._of.integers:
                text.line("i32 of_row = 0;")
                text.line(f"i32 of_column[{4 if self._of.turned else 1}] = {{0}};")
            self._begin_reads()
            self._read()
            self._put("0")
            text.line("BARRIER();")
            deep = _DEEP * self._per
            text.line("i32 at = 0;")
            with text.block(f"for (i32 rest = (i32)k; rest > 0; rest -= {deep})"):
                self._read()
                self._multiply()
                self._put("1 - at")
                text.line("at = 1 - at;")
                text.line("BARRIER();")
            if self._of.integers:
                self._shifts()
            self._write_result()

    def _each(self, name: str, count: int) -> Block:
        return self._text.block(f"for (i32 {name} = 0; {name} < {count}; {name}++)", unroll="UNROLL")

    def _begin_reads(self) -> None:
        """Declare what a thread reads: half of what is deep of a row of each operand, or, turned, four columns."""
        text, size, half = self._text, self._tile.size, _DEEP // 2 * self._per
        left, right = self._of.held
        text.line("const i32 mine_row = THREAD / 2;")
        text.line(f"const i32 mine_part = THREAD % 2 * {half};")
        text.line("u32 of_left[4];")
        text.line("u32 of_right[4];")
        # How many elements there are from here on; none of a row or column that is not there.
        text.line("i32 in_row = top + mine_row < m ? (i32)k - mine_part : 0;")
        text.line(f"const GLOBAL {left} *source = mine + (in_row > 0 ? top + mine_row : 0) * k + mine_part;")
        if self._of.turned:
            text.line(f"const i32 their_row = THREAD / {size // 4};")
            text.line(f"const i32 their_part = THREAD % {size // 4} * 4;")
            text.line("const i32 columns = (i32)(n - first) - their_part;")
            text.line(f"i32 in_column = columns > 0 ? (i32)k - their_row * {self._per} : 0;")
            start = f"their_row * {self._per} * pitch + first + their_part"
        else:
            text.line("i32 in_column = first + mine_row < n ? (i32)k - mine_part : 0;")
            start = "(in_column > 0 ? first + mine_row : 0) * pitch + mine_part"
        text.line(f"const GLOBAL {right} *other = theirs + {start};")

    def _read(self) -> None:
        """Read the next words from memory, 0 where there is nothing."""
        text, deep = self._text, _DEEP * self._per
        self._words("of_left", "source", "in_row", "in_row")
        if not self._of.turned:
            self._words("of_right", "other", "in_column", "in_column")
        elif self._of.integers:
            # Four rows of four bytes, turned into four words of bytes that are next to each other along k.
            text.line("u32 lines[4];")
            with self._each("i", 4):
                self._four("lines[i]", "other + i * pitch", "columns", "in_column > i")
            with self._each("i", 4):
                bytes_ = [f"(lines[{j}] >> (i * 8) & 255u) << {8 * j}" for j in range(4)]
                text.line(f"of_right[i] = {' | '.join(bytes_)};")
        else:
            self._words("of_right", "other", "columns", "in_column")
        text.line(f"source += {deep};")
        text.line(f"in_row -= {deep};")
        text.line(f"other += {f'{deep} * pitch' if self._of.turned else deep};")
        text.line(f"in_column -= {deep};")

    def _words(self, into: str, address: str, count: str, wanted: str) -> None:
        """Read four words that are next to each other, of which so many elements are there if any is wanted."""
        text = self._text
        if self._of.aligned:
            text.line(f"load_words({into}, {address}, {wanted} > 0);")
            return
        with self._each("i", 4):
            if self._of.integers:
                self._four(f"{into}[i]", f"{address} + i * 4", f"{count} - i * 4", f"{wanted} > 0")
            else:
                text.line(f"{into}[i] = {wanted} > 0 && {count} > i ? BITS({address}[i]) : 0u;")

    def _four(self, into: str, address: str, count: str, wanted: str) -> None:
        """Read four bytes that are next to each other."""
        if self._of.aligned:
            self._text.line(f"{into} = {wanted} ? *(const GLOBAL u32 *)({address}) : 0u;")
        else:
            self._text.line(f"{into} = {wanted} ? bytes_4((const GLOBAL u8 *)({address}), {count}) : 0u;")

    def _put(self, at: str) -> None:
        """Write what was read to shared memory, and add it to the sums of rows and columns."""
        text, wide = self._text, self._tile.size + _PAD
        half = _DEEP // 2
        with self._each("i", 4):
            spot = f"(({at}) * {_DEEP} + THREAD % 2 * {half} + i) * {wide} + mine_row"
            text.line(f"((LOCAL u32 *)left_tiles)[{spot}] = of_left[i];")
            if not self._of.turned:
                text.line(f"((LOCAL u32 *)right_tiles)[{spot}] = of_right[i];")
        if self._of.turned:
            four = ", ".join(f"of_right[{i}]" for i in range(4))
            text.line(f"right_tiles[{at}][their_row][their_part / 4] = FOUR({four});")
        if self._of.integers:
            left, right = self._of.left, self._of.right
            with self._each("i", 4):
                text.line(f"of_row = DOT4({left}, u8, of_left[i], {_ONES:#x}u, of_row);")
                column = "of_column[i]" if self._of.turned else "of_column[0]"
                text.line(f"{column} = DOT4({right}, u8, of_right[i], {_ONES:#x}u, {column});")

    def _multiply(self) -> None:
        text, size = self._text, self._tile.size
        with self._each("p", _DEEP):
            for name, groups, place_ in (("x", self._row_groups, "row"), ("y", self._column_groups, "column")):
                text.line(f"u32 {name}[{4 * groups}];")
                tiles = "left_tiles" if name == "x" else "right_tiles"
                for g in range(groups):
                    held = text.define("uint4", f"{tiles}[at][p][{place_} / 4 + {g * size // groups // 4}]", "four")
                    text.line(" ".join(f"{name}[{4 * g + i}] = {held}.{part};" for i, part in enumerate("xyzw")))
            with self._each("i", 8), self._each("j", self._tile.columns):
                if self._of.integers:
                    text.line(f"sums[i][j] = DOT4({self._of.left}, {self._of.right}, x[i], y[j], sums[i][j]);")
                else:
                    text.line("sums[i][j] = fma(FLOAT(x[i]), FLOAT(y[j]), sums[i][j]);")

    def _shifts(self) -> None:
        """Write what the zero points take off each row and column to shared memory.

        The sum of (a - z) (b - w) is that of a b, less w times the row's sum, less z times the column's, and k z w: all
        of it modulo 2^32, in which the result fits.
        """
        text, size = self._text, self._tile.size
        text.line("LOCAL u32 *of_rows = (LOCAL u32 *)left_tiles;")
        text.line("LOCAL u32 *of_columns = (LOCAL u32 *)right_tiles;")
        text.line(f"of_rows[THREAD % 2 * {size} + mine_row] = (u32)of_row;")
        if self._of.turned:
            parts = _DEEP
            with self._each("i", 4):
                text.line(f"of_columns[their_row * {size} + their_part + i] = (u32)of_column[i];")
        else:
            parts = 2
            text.line(f"of_columns[THREAD % 2 * {size} + mine_row] = (u32)of_column[0];")
        text.line("BARRIER();")
        with text.block(f"if (THREAD < {size})"):
            text.line("const u32 z = (u32)(i32)a_zero[0];")
            text.line("const u32 w = (u32)(i32)b_zero[0];")
            columns = " + ".join(f"of_columns[{part * size} + THREAD]" for part in range(parts))
            text.line(f"of_columns[THREAD] = (u32)k * z * w - z * ({columns});")
            text.line(f"of_rows[THREAD] = 0u - w * (of_rows[THREAD] + of_rows[{size} + THREAD]);")
        text.line("BARRIER();")

    def _write_result(self) -> None:
        text, size = self._text, self._tile.size
        with self._each("i", 8):
            text.line(f"const i32 own_row = row + i / 4 * {size // 2} + i % 4;")
            text.line("const i64 down_at = top + own_row;")
            with text.block("if (down_at < m)"), self._each("g", self._column_groups):
                text.line(f"const i32 own_column = column + g * {size // self._column_groups};")
                text.line("const i64 column_at = first + own_column;")
                text.line("const i64 there = (batch * m + down_at) * n + column_at;")
                with text.block("if (n % 4 == 0 && column_at < n)"):
                    held = result_of(self._of, self._finish)
                    values = [text.define(held, self._result(str(j))) for j in range(4)]
                    text.line(four(self._of, self._finish, values))
                with text.block("else"), self._each("j", 4), text.block("if (column_at + j < n)"):
                    text.line(f"c[there + j] = {self._result('j')};")

    def _result(self, j: str) -> str:
        element = f"sums[i][g * 4 + {j}]"
        if self._of.integers:
            element = f"(i32)((u32){element} + of_rows[own_row] + of_columns[own_column + {j}])"
        value = self._finish.value(self._text, element, f"there + {j}", f"column_at + {j}")
        return stored(self._of, self._finish, value)
