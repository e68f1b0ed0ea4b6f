"""The kernel of an attention whose weights are codes: output = sum(w[c] V) / sum(w[c]), c of (max - q k) * rate.

A block takes a tile of queries, a warp 16 or 32 of them, and loops over tiles of keys, double buffered in shared
memory. Products are mma.sync of fragments of 16 x 16 x 8; what is between them stays in the accumulator registers of
the first product, whose layout is that of the second one's left fragment.

In two passes the products with the keys are computed twice: first the maximum per row, then codes against it, the same
as the row program's but where rounding of the scores puts one on the other side of a boundary. In one pass (online)
codes are against a reference that rises by whole codes when the maximum does, by which the sums are rescaled; weights
then have to halve from code to code.

Source: the order of the computation is that of FlashAttention-2 (arXiv 2307.08691), the recurrence Milakov and
Gimelshein's (arXiv 1805.02867); the layout of fragments is PTX's (ISA 8.5, 9.7.14.5, mma.m16n8k16 and ldmatrix).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from softq.codegen.gpu.attention.codes import Codes
from softq.codegen.gpu.attention.tiles import HEAD_SIZES, THREADS, Shape, Tiles
from softq.codegen.gpu.dialect.text import F32, HALVES, Text, literal, pruned
from softq.codegen.gpu.rows.load_store import STRIDES
from softq.errors import UsageError
from softq.rowprog.library import F32_MAX

_LOW = literal(-F32_MAX, F32)
_NO_SCORE = literal(float("-inf"), F32)


def write_attention(codes: Codes, shape: Shape, *, symbol: str) -> str:
    """Return the kernel's text, to stand behind the prelude of either language.

        void symbol(const u16 *q, const u16 *k, const u16 *v, [const u8 *valid,] u16 *out, i32 queries, i32 keys,
                    i32 share, f32 rate, [i32 heads, i64 valid_outer, i64 valid_head, i64 valid_query,
                    i64 valid_element])

    q is [H, queries, width], k and v [H / share, keys, width] with H the heads of all samples, all 16-byte aligned. A
    block takes `shape.queries` queries of a head: H * ceil(queries / shape.queries) blocks of `THREADS` threads. `rate`
    is the codes' rate times the scale of the scores, greater than 0. A row without an unmasked key gives 0, one with a
    NaN among its scores NaN.

    Raises:
        UsageError: the type or the head size is another one, or weights do not halve from code to code and one pass is
            asked for.
    """
    if shape.kind not in HALVES or shape.width not in HEAD_SIZES:
        raise UsageError(
            f"attention of {shape.kind} with heads of {shape.width}; allowed are f16, bf16 and {HEAD_SIZES}"
        )
    if shape.online and not codes.halving:
        raise UsageError("going along the keys once takes weights that halve from one code to the next")
    return AttentionWriter(codes, shape).write(symbol)


def _weight_table(codes: Codes, shape: Shape, symbol: str) -> str:
    """Return the table of weights over the first one that stands before a kernel; empty if it needs none."""
    if codes.halving:
        return ""
    shares = np.array(codes.table, np.float64) / codes.table[0]
    if shape.kind == "f16":
        bits = shares.astype(np.float16).view(np.uint16).astype(np.int64)
    else:
        whole = shares.astype(np.float32).view(np.uint32).astype(np.int64)
        bits = (whole + 0x7FFF + ((whole >> 16) & 1)) >> 16
    words = ", ".join(f"{int(b)}u" for b in bits)
    return f"CONSTANT u32 {symbol}_weights[{len(codes.table)}] = {{{words}}};\n"


class AttentionWriter:
    """A kernel while it is written.

    Args:
        codes: How weights are made.
        shape: What is fixed in it.
        strides: How far apart rows of queries, keys and values are, by name, if not `shape.width`.
    """

    EMPTY = "0.0f"
    """What a row without weights is multiplied by."""

    def __init__(self, codes: Codes, shape: Shape, strides: Mapping[str, str] | None = None) -> None:
        self._codes, self._shape, self._text = codes, shape, Text()
        self._tiles = Tiles(shape, self._text, strides or dict.fromkeys(("query", "key", "value"), str(shape.width)))
        self._rows = {"p": shape.fragments, "h": 2}
        self._scores = {"p": shape.fragments, "j": shape.keys // 8, "h": 2, "i": 2}

    def parameters(self) -> list[str]:
        """Return the declarations of the kernel's parameters."""
        shape = self._shape
        names = [f"const GLOBAL u16 *RESTRICT {name}" for name in ("q", "k", "v")]
        names += ["const GLOBAL u8 *RESTRICT valid"] * shape.masked
        names += ["GLOBAL u16 *RESTRICT out", "i32 queries", "i32 keys", "i32 share", "f32 rate"]
        return names + (["i32 heads", *(f"i64 {name}" for name in STRIDES)] if shape.masked else [])

    def write(self, symbol: str) -> str:
        """Return the kernel's text."""
        with self._text.block(f"KERNEL_OF_TWO({THREADS}) {symbol}({', '.join(self.parameters())})"):
            self._start(symbol)
            if self._shape.online:
                self._one_pass()
            else:
                self._two_passes()
            self._write_result()
        return _weight_table(self._codes, self._shape, symbol) + pruned(str(self._text))

    def locate(self) -> None:
        """Write which head, and which rows of it, the block and the thread have."""
        text, shape = self._text, self._shape
        text.line(f"const i64 blocks = (queries + {shape.queries - 1}) / {shape.queries};")
        text.line("const i64 head = GROUP / blocks;")
        self.locate_rows()
        text.line(f"const GLOBAL u16 *key = k + head / share * keys * {shape.width};")
        text.line(f"const GLOBAL u16 *value = v + head / share * keys * {shape.width};")
        text.line(f"const GLOBAL u16 *query = q + head * queries * {shape.width};")
        if shape.masked:
            text.line("const GLOBAL u8 *seen = valid + head / heads * valid_outer + head % heads * valid_head;")

    def locate_rows(self) -> None:
        """Write the first row of the block, and of the thread."""
        self._text.line(f"const i32 top = (i32)(GROUP % blocks) * {self._shape.queries};")
        # A lane's elements of fragment p are two of row lane / 4 (h = 0) and two of row lane / 4 + 8 (h = 1).
        self._text.line(f"const i32 mine = top + THREAD / 32 * {16 * self._shape.fragments} + lane / 4;")

    def _start(self, symbol: str) -> None:
        text, shape = self._text, self._shape
        text.line(f"EXCHANGE({THREADS});", "const i32 lane = THREAD % 32;")
        self.locate()
        last = "keys"
        if shape.causal:
            text.line(f"const i32 beyond = top + {shape.queries} + keys - queries;")
            last = "(beyond < keys ? beyond > 0 ? beyond : 0 : keys)"
        text.line(f"const i32 end = {last};")
        text.line(f"const i32 steps = (end + {shape.keys - 1}) / {shape.keys};")
        if not self._codes.halving:
            size = len(self._codes.table)
            text.line(f"SHARED u32 weights[{size}];")
            with text.block(f"for (i32 i = THREAD; i < {size}; i += {THREADS})"):
                text.line(f"weights[i] = {symbol}_weights[i];")
        self._tiles.declare()
        self._tiles.load_queries()
        fragments = shape.fragments
        text.line(
            f"f32 top_score[{fragments}][2];",
            f"i32 bad[{fragments}][2];",
            f"f32 sums[{fragments}][{shape.width // 8}][4];",
        )
        # The weights times ones: the same total in all columns, of just what the values were multiplied with.
        text.line(f"f32 total[{fragments}][4];")
        with text.loops(p=fragments):
            text.each(
                f"top_score[p][h] = {_LOW if shape.online else _NO_SCORE};",
                "total[p][2 * h] = total[p][2 * h + 1] = 0.0f;",
                "bad[p][h] = 0;",
                h=2,
            )
            zeros = "sums[p][d][0] = sums[p][d][1] = sums[p][d][2] = sums[p][d][3] = 0.0f;"
            text.each(zeros, d=shape.width // 8)

    def _two_passes(self) -> None:
        text = self._text
        with self._tiles.loop(with_values=False):
            self._write_scores()
            top = "top_score[p][h] = greater_or_nan(top_score[p][h], scores[p][j][2 * h + i]);"
            text.each(top, **self._scores)
        with text.loops(**self._rows):
            self._reduce_row("top_score[p][h]")
            text.line("bad[p][h] = (i32)(top_score[p][h] != top_score[p][h]);")
            text.line(f"top_score[p][h] = GREATER(top_score[p][h], {_LOW});")
        with self._tiles.loop(with_values=True):
            self._write_scores()
            self._add_weighted_values()

    def _one_pass(self) -> None:
        text, shape = self._text, self._shape
        with self._tiles.loop(with_values=True):
            self._write_scores()
            text.line(f"f32 peak[{shape.fragments}][2];")
            text.each(f"peak[p][h] = {_NO_SCORE};", **self._rows)
            text.each("peak[p][h] = greater_or_nan(peak[p][h], scores[p][j][2 * h + i]);", **self._scores)
            with text.loops(**self._rows):
                self._reduce_row("peak[p][h]")
                text.line("bad[p][h] |= (i32)(peak[p][h] != peak[p][h]);")
                # The reference rises by whole codes, to the nearest; a row's first score sets it.
                text.line(
                    "const f32 old = top_score[p][h];",
                    "const f32 rise = GREATER(ROUND(PRODUCT(peak[p][h] - old, rate)), 0.0f);",
                    "const bool jumps = rise > 126.0f;",
                    "top_score[p][h] = jumps ? peak[p][h] : old + QUOTIENT(rise, rate);",
                    "const f32 rest = jumps ? 0.0f : FLOAT((u32)(127 - (i32)rise) << 23);",
                    "total[p][2 * h] *= rest;",
                )
                text.each("sums[p][d][2 * h] *= rest;", "sums[p][d][2 * h + 1] *= rest;", d=shape.width // 8)
            self._add_weighted_values()

    def _write_scores(self) -> None:
        text, shape = self._text, self._shape
        self._tiles.multiply_keys()
        self.change_scores()
        # Only the last tile, and those that the mask crosses, have masked scores.
        bound = f"at + {shape.keys} > keys"
        if shape.causal:
            bound += f" || at + {shape.keys - 1} > top + keys - queries"
        with text.block("" if shape.masked else f"if ({bound})"), text.loops(**self._scores):
            text.line("const i32 column = at + j * 8 + lane % 4 * 2 + i;")
            if shape.causal or shape.masked:
                text.line("const i32 row = mine + p * 16 + h * 8;")
            hidden = ["column >= keys"]
            if shape.causal:
                hidden.append("column > row + keys - queries")
            if shape.masked:
                hidden.append(f"row >= queries || {self.is_masked()}")
            text.line(f"if ({' || '.join(hidden)}) scores[p][j][2 * h + i] = {_NO_SCORE};")

    def change_scores(self) -> None:
        """Write what is done to each score before anything else; nothing here."""

    def is_masked(self) -> str:
        """Return the condition that the mask hides a score."""
        return "seen[row * valid_query + column * valid_element] == 0"

    def _add_weighted_values(self) -> None:
        """Write the weights of a tile as the left operand of the product with the values, and that product."""
        text, shape, top = self._text, self._shape, len(self._codes.table) - 1
        text.line(f"u32 shares[{shape.fragments}][{shape.keys // 8}][2];")
        with text.loops(p=shape.fragments, j=shape.keys // 8, h=2):
            codes: list[str] = []
            for i in (0, 1):
                level = self._rooted(f"PRODUCT(top_score[p][h] - scores[p][j][2 * h + {i}], rate)")
                clamped = f"LESSER(GREATER({level}, 0.0f), {literal(top, F32)})"
                codes.append(text.define("u32", f"nearest_bits({clamped})", "code"))
            text.line(f"shares[p][j][h] = {self._two_weights(codes, top)};")
        self._tiles.add_values()

    def _rooted(self, level: str) -> str:
        codes = self._codes
        if not codes.root:
            return level
        if codes.offset:
            level = f"GREATER({level} + {literal(codes.offset, F32)}, 0.0f)"
        return f"ROOT({level}) - {literal(codes.shift, F32)}" if codes.shift else f"ROOT({level})"

    def _two_weights(self, codes: Sequence[str], top: int) -> str:
        """Return two weights over the greatest one, packed in a word, of codes in the lowest bits of words."""
        # Powers of two: the exponent is that of 1 less the code.
        one, bits = (15, 10) if self._shape.kind == "f16" else (127, 7)
        if self._codes.halving and top == one:
            # The greatest code leaves no exponent, which is 0; what is above a code in its word is shifted out.
            first = (one << bits) * 0x10001
            return f"{first:#x}u - ({codes[0]} << {bits}) - ({codes[1]} << {bits + 16})"
        if self._codes.halving:
            words = [f"(({c} & 15u) == {top}u ? 0u : ({one}u - ({c} & 15u)) << {bits})" for c in codes]
        else:
            words = [f"weights[{c} & 255u]" for c in codes]
        return f"{words[0]} | {words[1]} << 16"

    def _reduce_row(self, name: str) -> None:
        """Write the maximum over the four lanes of a row, by shuffles."""
        for by in (1, 2):
            other = self._text.define(F32, f"OF_NEIGHBOUR({name}, {by})", "other")
            self._text.line(f"{name} = greater_or_nan({name}, {other});")

    def row_of_result(self) -> str:
        """Return where the result of a row is."""
        return f"out + (head * queries + row) * {self._shape.width}"

    def _write_result(self) -> None:
        text, shape = self._text, self._shape
        with text.loops(**self._rows):
            text.line("const i32 row = mine + p * 16 + h * 8;")
            inverse = f"total[p][2 * h] > 0.0f ? QUOTIENT(1.0f, total[p][2 * h]) : {self.EMPTY}"
            text.line(f"const f32 inverse = bad[p][h] != 0 ? {literal(float('nan'), F32)} : {inverse};")
            with text.block("if (row < queries)"):
                text.line(f"GLOBAL u16 *to = {self.row_of_result()} + lane % 4 * 2;")
                both = f"two_{shape.kind}(sums[p][d][2 * h] * inverse, sums[p][d][2 * h + 1] * inverse)"
                text.each(f"*(GLOBAL u32 *)(to + d * 8) = {both};", d=shape.width // 8)
