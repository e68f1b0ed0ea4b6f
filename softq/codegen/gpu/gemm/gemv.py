"""Products of a few rows, as decoding has them: the right operand, [n, k], is read once, and that is all the time.

On ordinary cores a warp has a few columns; its lanes go along k 16 bytes at a time and add up their sums in the end. On
tensor cores a block has 16 columns, and its warps take turns along k: weights are the left operand there, and up to 8
rows the right one. A lane has 8 numbers of a row of each; that these are not the k that PTX gives the lane's place does
not matter, as both operands have the same ones there.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from softq.codegen.gpu.dialect.text import Text
from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, Finish, result_of, stored
from softq.codegen.gpu.gemm.operands import Operands, head, place

Block = contextlib.AbstractContextManager[None]

MOST_ROWS = 8

_ONES = 0x01010101


@dataclass(frozen=True)
class Narrow:
    """The part of the result that a block has.

    Attributes:
        name: What its kernels' names end with.
        rows: Rows of the result, all of them.
        each: Columns of a warp on ordinary cores.
        warps: Warps of a block.
        columns: Columns of a block.
    """

    name: str
    rows: int
    each: int
    warps: int
    columns: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps


ONE, FEW = Narrow("row", 1, 1, 4, 4), Narrow("rows", MOST_ROWS, 4, 4, 16)
HALVES = Narrow("rows", MOST_ROWS, 0, 8, 16)


def narrow_kernel(symbol: str, operands: Operands, form: Narrow, finish: Finish = PLAIN) -> str:
    """Return the kernel, its parameters those of `operands.head`; operands are aligned and not turned."""
    assert operands.aligned
    assert not operands.turned
    text = Text()
    with text.block(head(symbol, operands, form.threads, finish.more, result=result_of(operands, finish))):
        text.line(f"EXCHANGE({form.threads});")
        place(text, operands, form.rows, form.columns)
        text.line("const i32 lane = THREAD % 32;")
        text.line("const i32 warp = THREAD / 32;")
        if form.each:
            _on_ordinary_cores(text, operands, form, finish)
        else:
            _on_tensor_cores(text, operands, form, finish)
    return str(text)


def _each(text: Text, name: str, count: int) -> Block:
    return text.block(f"for (i32 {name} = 0; {name} < {count}; {name}++)", unroll="UNROLL")


def _write(text: Text, operands: Operands, finish: Finish, element: str) -> None:
    """Write an element of the result where `row` and `column` are in it."""
    with text.block("if (row < m && column < n)"):
        text.line("const i64 there = (batch * m + row) * n + column;")
        value = finish.value(text, element, "there", "column")
        text.line(f"c[there] = {stored(operands, finish, value)};")


def _on_ordinary_cores(text: Text, of: Operands, form: Narrow, finish: Finish) -> None:
    rows, each, number = form.rows, form.each, "i32" if of.integers else "f32"
    text.line(f"const i64 columns = first + warp * {each};")
    text.line(f"{number} sums[{rows}][{each}];")
    with _each(text, "i", rows), _each(text, "j", each):
        text.line("sums[i][j] = 0;")
    if of.integers:
        text.line(f"i32 of_row[{rows}] = {{0}};")
        text.line(f"i32 of_column[{each}] = {{0}};")
    step = 32 * of.chunk
    unroll = "UNROLL_4" if rows == 1 else ""
    with text.block(f"for (i64 at = lane * {of.chunk}; at < k; at += {step})", unroll=unroll):
        text.line(f"u32 weights[{each}][4];")
        with _each(text, "j", each):
            text.line("load_words(weights[j], theirs + (columns + j < n ? columns + j : 0) * pitch + at, true);")
        with _each(text, "i", rows):
            text.line("u32 x[4];")
            text.line("load_words(x, mine + (top + i < m ? top + i : 0) * k + at, true);")
            with _each(text, "q", 4):
                if of.integers:
                    text.line(f"of_row[i] = DOT4({of.left}, u8, x[q], {_ONES:#x}u, of_row[i]);")
                with _each(text, "j", each):
                    if of.integers:
                        text.line(f"sums[i][j] = DOT4({of.left}, {of.right}, x[q], weights[j][q], sums[i][j]);")
                    else:
                        text.line("sums[i][j] = fma(FLOAT(x[q]), FLOAT(weights[j][q]), sums[i][j]);")
        if of.integers:
            with _each(text, "j", each), _each(text, "q", 4):
                text.line(f"of_column[j] = DOT4({of.right}, u8, weights[j][q], {_ONES:#x}u, of_column[j]);")
    if of.integers:
        # Modulo 2^32, lane by lane; what is left of the zero points is added once, behind the sums.
        text.line("const u32 z = (u32)(i32)a_zero[0];")
        text.line("const u32 w = (u32)(i32)b_zero[0];")
        with _each(text, "i", rows), _each(text, "j", each):
            text.line("sums[i][j] = (i32)((u32)sums[i][j] - z * (u32)of_column[j] - w * (u32)of_row[i]);")
    text.line(f"{number} mine_sum = 0;")
    with _each(text, "i", rows), _each(text, "j", each):
        for by in (16, 8, 4, 2, 1):
            if of.integers:
                text.line(f"sums[i][j] += (i32)BITS(OF_NEIGHBOUR(FLOAT((u32)sums[i][j]), {by}));")
            else:
                text.line(f"sums[i][j] += OF_NEIGHBOUR(sums[i][j], {by});")
        text.line(f"mine_sum = lane == i * {each} + j ? sums[i][j] : mine_sum;")
    if of.integers:
        text.line("mine_sum = (i32)((u32)mine_sum + (u32)k * z * w);")
    with text.block(f"if (lane < {rows * each})"):
        text.line(f"const i64 row = top + lane / {each};")
        text.line(f"const i64 column = columns + lane % {each};")
        _write(text, of, finish, "mine_sum")


def _on_tensor_cores(text: Text, of: Operands, form: Narrow, finish: Finish) -> None:
    text.line("f32 sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};")
    text.line("const i64 row = top + lane / 4;")
    text.line("const i64 upper = first + lane / 4;")
    text.line("const i64 lower = upper + 8;")
    text.line("const GLOBAL u16 *of_row = mine + (row < m ? row : 0) * k;")
    text.line("const GLOBAL u16 *of_upper = theirs + (upper < n ? upper : 0) * pitch;")
    text.line("const GLOBAL u16 *of_lower = theirs + (lower < n ? lower : 0) * pitch;")
    with text.block(f"for (i64 start = 0; start < k; start += {32 * form.warps})", unroll="UNROLL_4"):
        # All threads are there in every turn; of rows and columns that are not there nothing is written.
        text.line("const i64 at = start + warp * 32 + lane % 4 * 8;")
        for name in ("row", "upper", "lower"):
            text.line(f"u32 {name}_words[4];")
            text.line(f"load_words({name}_words, of_{name} + at, at < k);")
        for half in (0, 2):
            words = ", ".join(f"{name}_words[{half + i}]" for i in (0, 1) for name in ("upper", "lower"))
            text.line(f"const u32 left{half}[4] = {{{words}}};")
            right = f"row_words[{half}], row_words[{half + 1}]"
            text.line(f"MULTIPLY_ADD({of.left}, sums, left{half}, {right});")
    text.line(f"SHARED f32 parts[{form.warps}][{MOST_ROWS * 16}];")
    with _each(text, "i", 4):
        text.line("parts[warp][(lane % 4 * 2 + i % 2) * 16 + lane / 4 + i / 2 * 8] = sums[i];")
    text.line("BARRIER();")
    with text.block(f"if (THREAD < {MOST_ROWS * 16})"):
        text.line("f32 total = 0.0f;")
        with _each(text, "part", form.warps):
            text.line("total += parts[part][THREAD];")
        text.line("const i64 row = top + THREAD / 16;")
        text.line("const i64 column = first + THREAD % 16;")
        _write(text, of, finish, "total")
