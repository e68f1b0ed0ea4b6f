"""GEMV and its like, for the few rows of decoding: B, [n, k], is read once, and that is all the time.

SIMT: a warp has a few columns; its lanes stride along k with vectorized loads and reduce their sums by shuffles in the
end. Tensor cores: a block has 16 columns, and its warps take turns along k; weights are the left operand there, and up
to 8 rows the right one. A lane loads 8 contiguous elements per row; that these are not the k that PTX gives the lane's
fragment does not matter, as both operands permute k alike.
"""

from __future__ import annotations

from softq.codegen.gpu.gemm.kernel import ONES, GemmKernel, Tile

MOST_ROWS = 8


ROW, ROWS = Tile("row", 1, 4, 128, 1, 0), Tile("rows", MOST_ROWS, 16, 128, MOST_ROWS, 0)
HALF_ROWS = Tile("rows", MOST_ROWS, 16, 256, MOST_ROWS, 0)


class SimtGemv(GemmKernel):
    """A few rows of f32 or 8-bit integers; operands are aligned, B is [n, k]."""

    @property
    def _warp_columns(self) -> int:
        return self._tile.columns * 32 // self._tile.threads

    def _write_body(self) -> None:
        text, of, rows, each = self._text, self._of, self._tile.rows, self._warp_columns
        number = "i32" if of.integers else "f32"
        text.line(f"const i64 columns = first + warp * {each};", f"{number} sums[{rows}][{each}];")
        text.each("sums[i][j] = 0;", i=rows, j=each)
        if of.integers:
            text.line(f"i32 of_row[{rows}] = {{0}};", f"i32 of_column[{each}] = {{0}};")
        unroll = "UNROLL_4" if rows == 1 else ""
        with text.block(f"for (i64 at = lane * {of.chunk}; at < k; at += {32 * of.chunk})", unroll=unroll):
            text.line(f"u32 weights[{each}][4];")
            column = "theirs + (columns + j < n ? columns + j : 0) * pitch + at"
            text.each(f"load_words(weights[j], {column}, true);", j=each)
            with text.loops(i=rows):
                text.line("u32 x[4];", "load_words(x, mine + (top + i < m ? top + i : 0) * k + at, true);")
                with text.loops(q=4):
                    if of.integers:
                        text.line(f"of_row[i] = DOT4({of.left}, u8, x[q], {ONES}, of_row[i]);")
                    text.each(f"sums[i][j] = {of.multiply_add('x[q]', 'weights[j][q]', 'sums[i][j]')};", j=each)
            if of.integers:
                text.each(f"of_column[j] = DOT4({of.right}, u8, weights[j][q], {ONES}, of_column[j]);", j=each, q=4)
        self._reduce_lanes(number)

    def _reduce_lanes(self, number: str) -> None:
        text, integers, rows, each = self._text, self._of.integers, self._tile.rows, self._warp_columns
        if integers:
            # Modulo 2^32, per lane; k z w is added once, after the reduction.
            text.line("const u32 z = (u32)(i32)a_zero[0];", "const u32 w = (u32)(i32)b_zero[0];")
            shift = "- z * (u32)of_column[j] - w * (u32)of_row[i]"
            text.each(f"sums[i][j] = (i32)((u32)sums[i][j] {shift});", i=rows, j=each)
        text.line(f"{number} mine_sum = 0;")
        shuffled = "(i32)BITS(OF_NEIGHBOUR(FLOAT((u32)sums[i][j]), {}))" if integers else "OF_NEIGHBOUR(sums[i][j], {})"
        steps = [f"sums[i][j] += {shuffled.format(by)};" for by in (16, 8, 4, 2, 1)]
        text.each(*steps, f"mine_sum = lane == i * {each} + j ? sums[i][j] : mine_sum;", i=rows, j=each)
        if integers:
            text.line("mine_sum = (i32)((u32)mine_sum + (u32)k * z * w);")
        with text.block(f"if (lane < {rows * each})"):
            text.line(f"const i64 row = top + lane / {each};", f"const i64 column = columns + lane % {each};")
            self._write_element("mine_sum")


class TensorCoreGemv(GemmKernel):
    """A few rows of f16 or bf16; operands are aligned, B is [n, k]."""

    def _write_body(self) -> None:
        text, warps = self._text, self._tile.threads // 32
        text.line(
            "f32 sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};",
            "const i64 row = top + lane / 4;",
            "const i64 upper = first + lane / 4;",
            "const i64 lower = upper + 8;",
            "const GLOBAL u16 *of_row = mine + (row < m ? row : 0) * k;",
            "const GLOBAL u16 *of_upper = theirs + (upper < n ? upper : 0) * pitch;",
            "const GLOBAL u16 *of_lower = theirs + (lower < n ? lower : 0) * pitch;",
        )
        with text.block(f"for (i64 start = 0; start < k; start += {32 * warps})", unroll="UNROLL_4"):
            # All threads take part in each step; loads past k are predicated off.
            text.line("const i64 at = start + warp * 32 + lane % 4 * 8;")
            for name in ("row", "upper", "lower"):
                text.line(f"u32 {name}_words[4];", f"load_words({name}_words, of_{name} + at, at < k);")
            for half in (0, 2):
                words = ", ".join(f"{name}_words[{half + i}]" for i in (0, 1) for name in ("upper", "lower"))
                right = f"row_words[{half}], row_words[{half + 1}]"
                text.line(f"const u32 left{half}[4] = {{{words}}};")
                text.line(f"MULTIPLY_ADD({self._of.left}, sums, left{half}, {right});")
        text.line(f"SHARED f32 parts[{warps}][{MOST_ROWS * 16}];")
        text.each("parts[warp][(lane % 4 * 2 + i % 2) * 16 + lane / 4 + i / 2 * 8] = sums[i];", i=4)
        text.line("BARRIER();")
        with text.block(f"if (THREAD < {MOST_ROWS * 16})"):
            text.line("f32 total = 0.0f;")
            text.each("total += parts[part][THREAD];", part=warps)
            text.line("const i64 row = top + THREAD / 16;", "const i64 column = first + THREAD % 16;")
            self._write_element("total")
