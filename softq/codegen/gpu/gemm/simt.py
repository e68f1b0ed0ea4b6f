"""SIMT GEMM without tensor cores: f32, and 8-bit integers four at a time by dp4a.

A word is an f32, or four 8-bit integers contiguous along k, whose products `DOT4` accumulates. A thread has a register
tile of 8 x 8 or 8 x 4 sums, in groups of four rows and columns for vectorized loads from shared memory: in a tile of
128 x 128 it loads 16 words per 64 multiply-adds. Shared memory is double buffered: the next stage of 8 words per row
and column is loaded meanwhile; one barrier per stage.

Each sum is one chain in the order of k. Source of the form: V. Volkov, J. Demmel, "Benchmarking GPUs to Tune Dense
Linear Algebra", SC 2008; the groups of four and the double buffer are those of NVIDIA's CUTLASS (SIMT kernels).
"""

from __future__ import annotations

from softq.codegen.gpu.gemm.kernel import BYTE_KINDS, LARGE, ONES, GemmKernel

_STAGE = 8
"""Words of a row or column per stage in shared memory."""

_PAD = 4
"""Words of padding behind them: a warp stores a column of 16 rows to different banks."""


class SimtGemm(GemmKernel):
    """All rows of f32 or 8-bit integers."""

    SHUFFLES = False

    @property
    def _launch_bounds(self) -> str:
        return "KERNEL_OF_TWO" if self._tile is LARGE else "KERNEL"

    @property
    def _thread_columns(self) -> int:
        return self._tile.columns // 16

    @property
    def _per_word(self) -> int:
        return 4 if self._of.integers else 1

    def _write_body(self) -> None:
        text, of, tile = self._text, self._of, self._tile
        # Warp = 4 x 8 threads; 2 warps per tile row.
        text.line(
            "const i32 column = (warp % 2 * 8 + lane % 8) * 4;",
            "const i32 row = (warp / 2 * 4 + lane / 8) * 4;",
        )
        for name in ("left", "right"):
            text.line(f"SHARED uint4 {name}_tiles[2][{_STAGE}][{(tile.rows + _PAD) // 4}];")
        text.line(f"{'i32' if of.integers else 'f32'} sums[8][{self._thread_columns}];")
        text.each("sums[i][j] = 0;", i=8, j=self._thread_columns)
        if of.integers:
            text.line("i32 of_row = 0;", f"i32 of_column[{4 if of.b_is_kn else 1}] = {{0}};")
        self._declare_sources()
        self._load_global()
        self._store_shared("0")
        text.line("BARRIER();", "i32 at = 0;")
        with text.block(f"for (i32 rest = (i32)k; rest > 0; rest -= {_STAGE * self._per_word})"):
            self._load_global()
            self._multiply()
            self._store_shared("1 - at")
            text.line("at = 1 - at;", "BARRIER();")
        if of.integers:
            self._write_zero_point_terms()
        self._write_result()

    def _declare_sources(self) -> None:
        """Declare what a thread loads per stage: half of a row of A and of B [n, k], or four columns of B [k, n]."""
        text, size, half = self._text, self._tile.rows, _STAGE // 2 * self._per_word
        left, right = self._of.memory_types
        text.line("const i32 mine_row = THREAD / 2;", f"const i32 mine_part = THREAD % 2 * {half};")
        text.line("u32 of_left[4];", "u32 of_right[4];")
        # Remaining elements, for predicates; 0 outside of the operand.
        text.line("i32 in_row = top + mine_row < m ? (i32)k - mine_part : 0;")
        text.line(f"const GLOBAL {left} *source = mine + (in_row > 0 ? top + mine_row : 0) * k + mine_part;")
        if self._of.b_is_kn:
            text.line(f"const i32 their_row = THREAD / {size // 4};")
            text.line(f"const i32 their_part = THREAD % {size // 4} * 4;")
            text.line("const i32 columns = (i32)(n - first) - their_part;")
            text.line(f"i32 in_column = columns > 0 ? (i32)k - their_row * {self._per_word} : 0;")
            start = f"their_row * {self._per_word} * pitch + first + their_part"
        else:
            text.line("i32 in_column = first + mine_row < n ? (i32)k - mine_part : 0;")
            start = "(in_column > 0 ? first + mine_row : 0) * pitch + mine_part"
        text.line(f"const GLOBAL {right} *other = theirs + {start};")

    def _load_global(self) -> None:
        text, stage = self._text, _STAGE * self._per_word
        self._load_words("of_left", "source", "in_row", "in_row")
        if not self._of.b_is_kn:
            self._load_words("of_right", "other", "in_column", "in_column")
        elif self._of.integers:
            # Transpose 4 x 4 bytes: each word contiguous along k.
            text.line("u32 lines[4];")
            with text.loops(i=4):
                self._load_bytes("lines[i]", "other + i * pitch", "columns", "in_column > i")
            bytes_ = [f"(lines[{j}] >> (i * 8) & 255u) << {8 * j}" for j in range(4)]
            text.each(f"of_right[i] = {' | '.join(bytes_)};", i=4)
        else:
            self._load_words("of_right", "other", "columns", "in_column")
        text.line(f"source += {stage};", f"in_row -= {stage};")
        text.line(f"other += {f'{stage} * pitch' if self._of.b_is_kn else stage};", f"in_column -= {stage};")

    def _load_words(self, into: str, address: str, count: str, wanted: str) -> None:
        """Write the load of four contiguous words, predicated by `wanted` > 0 and their first `count` elements."""
        text = self._text
        if self._of.aligned:
            text.line(f"load_words({into}, {address}, {wanted} > 0);")
            return
        with text.loops(i=4):
            if self._of.integers:
                self._load_bytes(f"{into}[i]", f"{address} + i * 4", f"{count} - i * 4", f"{wanted} > 0")
            else:
                text.line(f"{into}[i] = {wanted} > 0 && {count} > i ? BITS({address}[i]) : 0u;")

    def _load_bytes(self, into: str, address: str, count: str, wanted: str) -> None:
        word = f"bytes_4((const GLOBAL u8 *)({address}), {count})"
        if self._of.aligned:
            word = f"*(const GLOBAL u32 *)({address})"
        self._text.line(f"{into} = {wanted} ? {word} : 0u;")

    def _store_shared(self, at: str) -> None:
        """Write the stores of a stage to shared memory, and add it to the sums of rows and columns."""
        text, of = self._text, self._of
        with text.loops(i=4):
            spot = f"(({at}) * {_STAGE} + THREAD % 2 * {_STAGE // 2} + i) * {self._tile.rows + _PAD} + mine_row"
            text.line(f"((LOCAL u32 *)left_tiles)[{spot}] = of_left[i];")
            if not self._of.b_is_kn:
                text.line(f"((LOCAL u32 *)right_tiles)[{spot}] = of_right[i];")
        if self._of.b_is_kn:
            four = ", ".join(f"of_right[{i}]" for i in range(4))
            text.line(f"right_tiles[{at}][their_row][their_part / 4] = FOUR({four});")
        if of.integers:
            row = f"of_row = DOT4({of.left}, u8, of_left[i], {ONES}, of_row);"
            column = f"of_column[{'i' if of.b_is_kn else '0'}]"
            text.each(row, f"{column} = DOT4({of.right}, u8, of_right[i], {ONES}, {column});", i=4)

    def _multiply(self) -> None:
        text, size, columns = self._text, self._tile.rows, self._thread_columns
        with text.loops(p=_STAGE):
            for name, tiles, start, groups in (("x", "left", "row", 2), ("y", "right", "column", columns // 4)):
                text.line(f"u32 {name}[{4 * groups}];")
                for g in range(groups):
                    at = f"{tiles}_tiles[at][p][{start} / 4 + {g * size // groups // 4}]"
                    four = text.define("uint4", at, "four")
                    text.line(" ".join(f"{name}[{4 * g + i}] = {four}.{part};" for i, part in enumerate("xyzw")))
            text.each(f"sums[i][j] = {self._of.multiply_add('x[i]', 'y[j]', 'sums[i][j]')};", i=8, j=columns)

    def _write_zero_point_terms(self) -> None:
        """Write what the zero points take off each row and column to shared memory.

        The sum of (a - z) (b - w) is that of a b, less w times the row's sum, less z times the column's, and k z w: all
        of it modulo 2^32, in which the result fits.
        """
        text, size = self._text, self._tile.rows
        text.line("LOCAL u32 *of_rows = (LOCAL u32 *)left_tiles;", "LOCAL u32 *of_columns = (LOCAL u32 *)right_tiles;")
        text.line(f"of_rows[THREAD % 2 * {size} + mine_row] = (u32)of_row;")
        if self._of.b_is_kn:
            parts = _STAGE
            text.each(f"of_columns[their_row * {size} + their_part + i] = (u32)of_column[i];", i=4)
        else:
            parts = 2
            text.line(f"of_columns[THREAD % 2 * {size} + mine_row] = (u32)of_column[0];")
        text.line("BARRIER();")
        with text.block(f"if (THREAD < {size})"):
            text.line("const u32 z = (u32)(i32)a_zero[0];", "const u32 w = (u32)(i32)b_zero[0];")
            columns = " + ".join(f"of_columns[{part * size} + THREAD]" for part in range(parts))
            text.line(f"of_columns[THREAD] = (u32)k * z * w - z * ({columns});")
            text.line(f"of_rows[THREAD] = 0u - w * (of_rows[THREAD] + of_rows[{size} + THREAD]);")
        text.line("BARRIER();")

    def _write_result(self) -> None:
        text, size, groups = self._text, self._tile.rows, self._thread_columns // 4
        with text.loops(i=8):
            text.line(f"const i32 own_row = row + i / 4 * {size // 2} + i % 4;", "const i64 down_at = top + own_row;")
            with text.block("if (down_at < m)"), text.loops(g=groups):
                text.line(f"const i32 own_column = column + g * {size // groups};")
                text.line("const i64 column_at = first + own_column;")
                text.line("const i64 there = (batch * m + down_at) * n + column_at;")
                with text.block("if (n % 4 == 0 && column_at < n)"):
                    values = [text.define(self._result_type, self._result(str(j))) for j in range(4)]
                    text.line(_store_four(self._result_type, values))
                with text.block("else"), text.loops(j=4), text.block("if (column_at + j < n)"):
                    text.line(f"c[there + j] = {self._result('j')};")

    def _result(self, j: str) -> str:
        element = f"sums[i][g * 4 + {j}]"
        if self._of.integers:
            element = f"(i32)((u32){element} + of_rows[own_row] + of_columns[own_column + {j}])"
        return self._apply_epilogue(element, f"there + {j}", f"column_at + {j}")


def _store_four(memory_type: str, values: list[str]) -> str:
    """Return the vectorized store of four elements, converted to their type in memory, to `c + there`."""
    if memory_type in BYTE_KINDS:
        word = " | ".join(f"((u32){value} & 255u) << {8 * i}" for i, value in enumerate(values))
        return f"*(GLOBAL u32 *)(c + there) = {word};"
    if memory_type == "u16":
        low, high = (f"(u32){values[i]} | (u32){values[i + 1]} << 16" for i in (0, 2))
        return f"*(GLOBAL uint2 *)(c + there) = TWO({low}, {high});"
    words = ", ".join(f"{'BITS' if memory_type == 'f32' else '(u32)'}({value})" for value in values)
    return f"*(GLOBAL uint4 *)(c + there) = FOUR({words});"
