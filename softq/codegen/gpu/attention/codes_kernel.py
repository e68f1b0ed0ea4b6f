"""The kernel of an attention whose weights are codes: output = sum(w[c] V) / sum(w[c]), c of (max - q k) * rate.

A block takes a tile of queries, a warp 16 or 32 of them, and goes along the keys in tiles that are copied into shared
memory while the one before is computed. Products are those of fragments of 16 x 16 x 8 halves; what is between them
stays in the registers that the first product leaves, which are laid out as the second one takes them.

In two phases the products with the keys are computed twice: first the maximum of each row, then codes against it, the
same as the row program's but where rounding of the scores puts one on the other side of a boundary. In one phase codes
are against a reference that rises by whole codes when the maximum does, by which what was summed is scaled; weights
then have to halve from code to code.

Source: the order of the computation is that of FlashAttention-2 (arXiv 2307.08691), the recurrence Milakov and
Gimelshein's (arXiv 1805.02867); the layout of fragments is PTX's (ISA 8.5, 9.7.14.5, mma.m16n8k16 and ldmatrix).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from softq.codegen.gpu.attention.codes import Codes
from softq.codegen.gpu.attention.tiles import Tiles
from softq.codegen.gpu.dialect.dialects import Dialect
from softq.codegen.gpu.dialect.text import F32, Text, literal, pruned
from softq.codegen.gpu.rows.load_store import HALVES
from softq.errors import UsageError
from softq.rowprog.library import F32_MAX

WIDTHS = (32, 64, 96, 128)
WARPS = 4
THREADS = WARPS * 32

_PAD = 8
"""Halves behind each row of a tile in shared memory, so that rows begin in different banks."""

_LOW = literal(-F32_MAX, F32)
_NO_SCORE = literal(float("-inf"), F32)

Block = contextlib.AbstractContextManager[None]


@dataclass(frozen=True)
class Shape:
    """What is fixed in a kernel.

    Attributes:
        kind: f16 or bf16: queries, keys, values and results.
        width: Numbers of a head, one of `WIDTHS`.
        causal: Whether query i sees keys up to i + keys - queries alone.
        masked: Whether there is a mask of bytes.
        online: Whether the keys are gone along once, else twice.
    """

    kind: str
    width: int
    causal: bool = False
    masked: bool = False
    online: bool = False

    @property
    def parts(self) -> int:
        """Tiles of 16 queries of a warp."""
        return 2 if self.width <= WIDTHS[1] else 1

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return WARPS * 16 * self.parts

    @property
    def keys(self) -> int:
        """Keys of a tile: scores and sums stay in registers, two tiles of keys and two of values within 48 KiB."""
        return 32


@dataclass(frozen=True)
class AttentionKernel:
    """The kernel of an attention.

    Attributes:
        symbol: Its name.
        text: Its text, to stand behind the prelude of its language.
        shape: What is fixed in it.
    """

    symbol: str
    text: str
    shape: Shape


def attention_kernel(codes: Codes, shape: Shape, dialect: Dialect, *, symbol: str) -> AttentionKernel:
    """Return the kernel.

        void symbol(const u16 *q, const u16 *k, const u16 *v, [const u8 *valid,] u16 *out, i32 queries, i32 keys,
                    i32 share, f32 rate, [i32 heads, i64 valid_outer, i64 valid_head, i64 valid_query,
                    i64 valid_element])

    q is [H, queries, width], k and v [H / share, keys, width] with H the heads of all samples, all 16-byte aligned. A
    block takes `shape.queries` queries of a head: H * ceil(queries / shape.queries) blocks of `THREADS` threads. `rate`
    is the codes' rate times the scale of the scores, greater than 0. A row without an unmasked key gives 0, one with a
    NaN among its scores NaN.

    Raises:
        UsageError: the type or the width is another one, or weights do not halve from code to code and the keys are to
            be gone along once.
    """
    if shape.kind not in HALVES or shape.width not in WIDTHS:
        raise UsageError(f"attention of {shape.kind} with heads of {shape.width}; allowed are f16, bf16 and {WIDTHS}")
    if shape.online and not codes.halves:
        raise UsageError("going along the keys once takes weights that halve from one code to the next")
    text = Text()
    Writer(codes, shape, text).write(symbol)
    return AttentionKernel(symbol, weights(codes, shape, symbol) + pruned(str(text)), shape)


def weights(codes: Codes, shape: Shape, symbol: str) -> str:
    """Return the table that a kernel reads, to stand before it; empty if it needs none."""
    return "" if codes.halves else _table(codes, shape, symbol)


def _table(codes: Codes, shape: Shape, symbol: str) -> str:
    """Return the weights over the first one, as halves."""
    shares = np.array(codes.table, np.float64) / codes.table[0]
    if shape.kind == "f16":
        bits = shares.astype(np.float16).view(np.uint16).astype(np.int64)
    else:
        whole = shares.astype(np.float32).view(np.uint32).astype(np.int64)
        bits = (whole + 0x7FFF + ((whole >> 16) & 1)) >> 16
    words = ", ".join(f"{int(b)}u" for b in bits)
    return f"CONSTANT u32 {symbol}_weights[{len(codes.table)}] = {{{words}}};\n"


class Writer:
    """A kernel while it is written.

    Args:
        codes: How weights are made.
        shape: What is fixed in it.
        text: Its lines.
        rows: How far apart rows of queries, keys and values are, by name, if not `shape.width`.
    """

    EMPTY = "0.0f"
    """What a row without weights is multiplied by."""

    def __init__(self, codes: Codes, shape: Shape, text: Text, rows: Mapping[str, str] | None = None) -> None:
        self._codes, self._shape, self._text = codes, shape, text
        apart = rows or dict.fromkeys(("query", "key", "value"), str(shape.width))
        self._tiles = Tiles(shape.kind, shape.width, shape.parts, shape.keys, shape.width + _PAD, THREADS, text, apart)

    def parameters(self) -> list[str]:
        """Return the declarations of the kernel's parameters."""
        shape = self._shape
        names = [f"const GLOBAL u16 *RESTRICT {name}" for name in ("q", "k", "v")]
        names += ["const GLOBAL u8 *RESTRICT valid"] * shape.masked
        names += ["GLOBAL u16 *RESTRICT out", "i32 queries", "i32 keys", "i32 share", "f32 rate"]
        strides = ("valid_outer", "valid_head", "valid_query", "valid_element")
        return names + (["i32 heads", *(f"i64 {name}" for name in strides)] if shape.masked else [])

    def write(self, symbol: str) -> None:
        """Write the kernel."""
        with self._text.block(f"KERNEL_OF_TWO({THREADS}) {symbol}({', '.join(self.parameters())})"):
            self._start(symbol)
            if self._shape.online:
                self._once()
            else:
                self._twice()
            self._finish()

    def place(self) -> None:
        """Write which head, and which rows of it, the block and the thread have."""
        text, shape = self._text, self._shape
        text.line(f"const i64 blocks = (queries + {shape.queries - 1}) / {shape.queries};")
        text.line("const i64 head = GROUP / blocks;")
        self.rows()
        text.line(f"const GLOBAL u16 *key = k + head / share * keys * {shape.width};")
        text.line(f"const GLOBAL u16 *value = v + head / share * keys * {shape.width};")
        text.line(f"const GLOBAL u16 *query = q + head * queries * {shape.width};")
        if shape.masked:
            text.line("const GLOBAL u8 *seen = valid + head / heads * valid_outer + head % heads * valid_head;")

    def rows(self) -> None:
        """Write the first row of the block, and of the thread."""
        text, shape = self._text, self._shape
        text.line(f"const i32 top = (i32)(GROUP % blocks) * {shape.queries};")
        # Row 8 h + lane / 4 of part p is that of the first and of the second two numbers of its fragments, h = 0, 1.
        text.line(f"const i32 mine = top + THREAD / 32 * {16 * shape.parts} + lane / 4;")

    def _start(self, symbol: str) -> None:
        text, shape = self._text, self._shape
        text.line(f"EXCHANGE({THREADS});")
        text.line("const i32 lane = THREAD % 32;")
        self.place()
        last = "keys"
        if shape.causal:
            text.line(f"const i32 beyond = top + {shape.queries} + keys - queries;")
            last = "(beyond < keys ? beyond > 0 ? beyond : 0 : keys)"
        text.line(f"const i32 end = {last};")
        text.line(f"const i32 steps = (end + {shape.keys - 1}) / {shape.keys};")
        if not self._codes.halves:
            size = len(self._codes.table)
            text.line(f"SHARED u32 weights[{size}];")
            with text.block(f"for (i32 i = THREAD; i < {size}; i += {THREADS})"):
                text.line(f"weights[i] = {symbol}_weights[i];")
        self._tiles.declare()
        self._tiles.load_queries()
        parts = shape.parts
        text.line(f"f32 top_score[{parts}][2];")
        text.line(f"i32 bad[{parts}][2];")
        text.line(f"f32 sums[{parts}][{shape.width // 8}][4];")
        # The weights times ones: the same total in all columns, of just what the values were multiplied with.
        text.line(f"f32 total[{parts}][4];")
        with self._parts():
            with self._halves():
                text.line(f"top_score[p][h] = {_LOW if shape.online else _NO_SCORE};")
                text.line("total[p][2 * h] = total[p][2 * h + 1] = 0.0f;")
                text.line("bad[p][h] = 0;")
            with text.block(f"for (i32 d = 0; d < {shape.width // 8}; d++)", unroll="UNROLL"):
                text.line("sums[p][d][0] = sums[p][d][1] = sums[p][d][2] = sums[p][d][3] = 0.0f;")

    def _parts(self) -> Block:
        return self._text.block(f"for (i32 p = 0; p < {self._shape.parts}; p++)", unroll="UNROLL")

    def _halves(self) -> Block:
        return self._text.block("for (i32 h = 0; h < 2; h++)", unroll="UNROLL")

    def _columns(self) -> Block:
        return self._text.block(f"for (i32 j = 0; j < {self._shape.keys // 8}; j++)", unroll="UNROLL")

    def _twice(self) -> None:
        text = self._text
        with self._tiles.along(with_values=False):
            self._scores()
            with self._each_score():
                text.line("top_score[p][h] = greater_or_nan(top_score[p][h], scores[p][j][2 * h + i]);")
        with self._parts(), self._halves():
            self._over_row("top_score[p][h]")
            text.line("bad[p][h] = (i32)(top_score[p][h] != top_score[p][h]);")
            text.line(f"top_score[p][h] = GREATER(top_score[p][h], {_LOW});")
        with self._tiles.along(with_values=True):
            self._scores()
            self._weigh()
            self._tiles.add_values()

    def _once(self) -> None:
        text, shape = self._text, self._shape
        with self._tiles.along(with_values=True):
            self._scores()
            text.line(f"f32 peak[{shape.parts}][2];")
            with self._parts(), self._halves():
                text.line(f"peak[p][h] = {_NO_SCORE};")
            with self._each_score():
                text.line("peak[p][h] = greater_or_nan(peak[p][h], scores[p][j][2 * h + i]);")
            with self._parts(), self._halves():
                self._over_row("peak[p][h]")
                text.line("bad[p][h] |= (i32)(peak[p][h] != peak[p][h]);")
                text.line("const f32 old = top_score[p][h];")
                # By whole codes, to the nearest; as far as the numbers go for a row's first score.
                text.line("const f32 rise = GREATER(ROUND(PRODUCT(peak[p][h] - old, rate)), 0.0f);")
                text.line("const bool jumps = rise > 126.0f;")
                text.line("top_score[p][h] = jumps ? peak[p][h] : old + QUOTIENT(rise, rate);")
                text.line("const f32 rest = jumps ? 0.0f : FLOAT((u32)(127 - (i32)rise) << 23);")
                text.line("total[p][2 * h] *= rest;")
                with text.block(f"for (i32 d = 0; d < {shape.width // 8}; d++)", unroll="UNROLL"):
                    text.line("sums[p][d][2 * h] *= rest;")
                    text.line("sums[p][d][2 * h + 1] *= rest;")
            self._weigh()
            self._tiles.add_values()

    def _scores(self) -> None:
        """Write the product with a tile of keys, and what a mask takes of it."""
        text, shape = self._text, self._shape
        self._tiles.multiply_keys()
        self.change_scores()
        # Only tiles at the end, and those that a mask crosses, have scores that do not count.
        bound = f"at + {shape.keys} > keys"
        if shape.causal:
            bound += f" || at + {shape.keys - 1} > top + keys - queries"
        with text.block("" if shape.masked else f"if ({bound})"), self._each_score():
            text.line("const i32 column = at + j * 8 + lane % 4 * 2 + i;")
            if shape.causal or shape.masked:
                text.line("const i32 row = mine + p * 16 + h * 8;")
            hidden = ["column >= keys"]
            if shape.causal:
                hidden.append("column > row + keys - queries")
            if shape.masked:
                hidden.append(f"row >= queries || {self.unseen()}")
            text.line(f"if ({' || '.join(hidden)}) scores[p][j][2 * h + i] = {_NO_SCORE};")

    def change_scores(self) -> None:
        """Write what is done to each score before anything else; nothing here."""

    def unseen(self) -> str:
        """Return whether the mask takes a score away."""
        return "seen[row * valid_query + column * valid_element] == 0"

    @contextlib.contextmanager
    def _each_score(self) -> Generator[None]:
        inner = self._text.block("for (i32 i = 0; i < 2; i++)", unroll="UNROLL")
        with self._parts(), self._columns(), self._halves(), inner:
            yield

    def _weigh(self) -> None:
        """Write the weights of a tile as the left operand of the product with the values."""
        text, shape, top = self._text, self._shape, len(self._codes.table) - 1
        text.line(f"u32 shares[{shape.parts}][{shape.keys // 8}][2];")
        with self._parts(), self._columns(), self._halves():
            codes: list[str] = []
            for i in (0, 1):
                level = f"PRODUCT(top_score[p][h] - scores[p][j][2 * h + {i}], rate)"
                level = self._rooted(level) if self._codes.root else level
                clamped = f"LESSER(GREATER({level}, 0.0f), {literal(top, F32)})"
                codes.append(text.define("u32", f"nearest_bits({clamped})", "code"))
            text.line(f"shares[p][j][h] = {self._two_weights(codes, top)};")

    def _rooted(self, level: str) -> str:
        codes = self._codes
        if codes.offset:
            level = f"GREATER({level} + {literal(codes.offset, F32)}, 0.0f)"
        return f"ROOT({level}) - {literal(codes.shift, F32)}" if codes.shift else f"ROOT({level})"

    def _two_weights(self, codes: Sequence[str], top: int) -> str:
        """Return two weights over the greatest one as halves, of codes in the lowest bits of words."""
        # Powers of two: the exponent is that of 1 less the code.
        one, bits = (15, 10) if self._shape.kind == "f16" else (127, 7)
        if self._codes.halves and top == one:
            # The greatest code leaves no exponent, which is 0; what is above a code in its word is shifted out.
            first = (one << bits) * 0x10001
            return f"{first:#x}u - ({codes[0]} << {bits}) - ({codes[1]} << {bits + 16})"
        if self._codes.halves:
            words = [f"(({c} & 15u) == {top}u ? 0u : ({one}u - ({c} & 15u)) << {bits})" for c in codes]
        else:
            words = [f"weights[{c} & 255u]" for c in codes]
        return f"{words[0]} | {words[1]} << 16"

    def _over_row(self, name: str) -> None:
        """Let the four threads of a row have their greatest number."""
        for by in (1, 2):
            other = self._text.define(F32, f"OF_NEIGHBOUR({name}, {by})", "other")
            self._text.line(f"{name} = greater_or_nan({name}, {other});")

    def row_of_result(self) -> str:
        """Return where the result of a row is."""
        return f"out + (head * queries + row) * {self._shape.width}"

    def _finish(self) -> None:
        text, shape = self._text, self._shape
        with self._parts(), self._halves():
            text.line("const i32 row = mine + p * 16 + h * 8;")
            inverse = f"total[p][2 * h] > 0.0f ? QUOTIENT(1.0f, total[p][2 * h]) : {self.EMPTY}"
            text.line(f"const f32 inverse = bad[p][h] != 0 ? {literal(float('nan'), F32)} : {inverse};")
            with text.block("if (row < queries)"):
                text.line(f"GLOBAL u16 *to = {self.row_of_result()} + lane % 4 * 2;")
                with text.block(f"for (i32 d = 0; d < {shape.width // 8}; d++)", unroll="UNROLL"):
                    both = f"two_{shape.kind}(sums[p][d][2 * h] * inverse, sums[p][d][2 * h + 1] * inverse)"
                    text.line(f"*(GLOBAL u32 *)(to + d * 8) = {both};")
