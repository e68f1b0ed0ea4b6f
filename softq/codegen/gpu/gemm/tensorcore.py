"""Products of float16 and bfloat16 on tensor cores, sums in float32, in tiles of the result that a block has.

A warp has 64 x 32 or 32 x 32 sums in the fragments that `mma.sync` adds to. Operands come into shared memory by copies
of 16 bytes that go on while the tile before is computed (`cp.async`), two ahead, and from there by `ldmatrix`; the
pieces of 16 bytes of a row are in an order that differs from row to row, so that the eight rows of a matrix are in
different banks. Where rows do not begin at multiples of 16 bytes, the copies are made number by number.

Source: the layout of fragments is PTX's (ISA 8.5, 9.7.14.5, mma.m16n8k16 and ldmatrix); stages and swizzle are those of
NVIDIA's CUTLASS (sm_80 kernels).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass

from softq.codegen.gpu.dialect.text import Text
from softq.codegen.gpu.gemm.fused_epilogue import PLAIN, Finish, result_of, stored
from softq.codegen.gpu.gemm.operands import Operands, head, place

_DEEP = 32
"""Numbers of a row or column that are in shared memory at a time."""

_STAGES = 3
"""Tiles in shared memory: one in use, two on their way; 48 KiB of the large form."""

_PIECE = 8
"""Numbers of 16 bytes."""


@dataclass(frozen=True)
class HalfTile:
    """The part of the result that a block has.

    Attributes:
        name: What its kernels' names end with.
        size: Its rows and columns.
        down: Warps below each other.
        across: Warps beside each other, each with 32 columns.
    """

    name: str
    size: int
    down: int
    across: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.down * self.across

    @property
    def parts(self) -> int:
        """Fragments of 16 rows of a warp."""
        return self.size // self.down // 16


LARGE, SMALL = HalfTile("128x128", 128, 2, 4), HalfTile("64x64", 64, 2, 2)


def half_kernel(symbol: str, operands: Operands, tile: HalfTile, finish: Finish = PLAIN) -> str:
    """Return the kernel, its parameters those of `operands.head`; a block for each tile of each product."""
    text = Text()
    _Writer(operands, tile, finish, text).write(symbol)
    return str(text)


class _Writer:
    def __init__(self, operands: Operands, tile: HalfTile, finish: Finish, text: Text) -> None:
        self._of, self._tile, self._finish, self._text = operands, tile, finish, text

    def write(self, symbol: str) -> None:
        text, tile = self._text, self._tile
        result = result_of(self._of, self._finish)
        with text.block(head(symbol, self._of, tile.threads, self._finish.more, "KERNEL_OF_STAGES", result)):
            text.line(f"EXCHANGE({tile.threads});")
            place(text, self._of, tile.size, tile.size)
            text.line("const i32 lane = THREAD % 32;")
            text.line("const i32 warp = THREAD / 32;")
            text.line(f"const i32 row = warp / {tile.across} * {tile.parts * 16};")
            text.line(f"const i32 column = warp % {tile.across} * 32;")
            for name in ("left", "right"):
                text.line(f"SHARED uint4 {name}_tiles[{_STAGES}][{tile.size * _DEEP // _PIECE}];")
            text.line(f"f32 sums[{tile.parts}][4][4];")
            with self._each("p", tile.parts), self._each("j", 4), self._each("i", 4):
                text.line("sums[p][j][i] = 0.0f;")
            text.line(f"const i64 steps = (k + {_DEEP - 1}) / {_DEEP};")
            for stage in range(_STAGES - 1):
                with text.block(f"if ({stage} < steps)"):
                    self._copy(str(stage), str(stage))
                text.line("COPIES_END();")
            text.line("i32 at = 0;")
            with text.block("for (i64 step = 0; step < steps; step++)"):
                text.line(f"COPIES_ARRIVED_BUT({_STAGES - 2});")
                # Whoever was still at the tile that is now written over has come here, too.
                text.line("BARRIER();")
                with text.block(f"if (step + {_STAGES - 1} < steps)"):
                    self._copy(f"(step + {_STAGES - 1})", f"(at == 0 ? {_STAGES - 1} : at - 1)")
                text.line("COPIES_END();")
                self._multiply()
                text.line(f"at = at == {_STAGES - 1} ? 0 : at + 1;")
            self._write_result()

    @contextlib.contextmanager
    def _each(self, name: str, count: int) -> Generator[None]:
        with self._text.block(f"for (i32 {name} = 0; {name} < {count}; {name}++)", unroll="UNROLL"):
            yield

    def _copy(self, step: str, stage: str) -> None:
        """Start the copies of a tile of each operand, zeros where there is nothing."""
        text, size = self._text, self._tile.size
        with self._each("i", size * _DEEP // _PIECE // self._tile.threads):
            text.line(f"const i32 piece = i * {self._tile.threads} + THREAD;")
            self._along("left", "mine", "top", "m", "k", step, stage)
            if not self._of.turned:
                self._along("right", "theirs", "first", "n", "pitch", step, stage)
                return
            text.line(f"const i32 deep = piece / {size // _PIECE};")
            text.line(f"const i32 beside = piece % {size // _PIECE};")
            text.line(f"const i64 below = {step} * {_DEEP} + deep;")
            text.line(f"const i64 columns = n - first - beside * {_PIECE};")
            spot = f"deep * {size // _PIECE} + (beside ^ (deep & 7))"
            start = f"theirs + (below < k && columns > 0 ? below * pitch + first + beside * {_PIECE} : 0)"
            self._piece(f"&right_tiles[{stage}][{spot}]", start, "below < k ? columns : 0")

    def _along(self, name: str, source: str, begin: str, end: str, pitch: str, step: str, stage: str) -> None:
        """Copy 16 bytes along k."""
        text = self._text
        text.line(f"const i32 {name}_row = piece / {_DEEP // _PIECE};")
        text.line(f"const i32 {name}_part = piece % {_DEEP // _PIECE};")
        text.line(f"const i64 {name}_along = {step} * {_DEEP} + {name}_part * {_PIECE};")
        text.line(f"const i64 {name}_left = {begin} + {name}_row < {end} ? k - {name}_along : 0;")
        start = f"{source} + ({name}_left > 0 ? ({begin} + {name}_row) * {pitch} + {name}_along : 0)"
        spot = f"{name}_row * 4 + ({name}_part ^ ({name}_row >> 1 & 3))"
        self._piece(f"&{name}_tiles[{stage}][{spot}]", start, f"{name}_left")

    def _piece(self, into: str, start: str, count: str) -> None:
        if self._of.aligned:
            self._text.line(f"COPY_16({into}, {start}, ({count}) > 0);")
        else:
            words = ", ".join(f"halves_2({start} + {2 * i}, ({count}) - {2 * i})" for i in range(4))
            self._text.line(f"*({into}) = FOUR({words});")

    def _multiply(self) -> None:
        text, tile = self._text, self._tile
        text.line("const LOCAL u16 *left_tile = (const LOCAL u16 *)left_tiles[at];")
        text.line("const LOCAL u16 *right_tile = (const LOCAL u16 *)right_tiles[at];")
        with self._each("s", _DEEP // 16):
            text.line(f"u32 left[{tile.parts}][4];")
            with self._each("p", tile.parts):
                text.line("const i32 line = row + p * 16 + lane % 16;")
                text.line("const i32 part = s * 2 + lane / 16;")
                text.line(f"LOAD_4(left[p], left_tile, (line * 4 + (part ^ (line >> 1 & 3))) * {_PIECE});")
            with self._each("j", 2):
                text.line("u32 right[4];")
                if self._of.turned:
                    # Sixteen numbers along k in two matrices, and 16 columns of each.
                    text.line("const i32 deep = s * 16 + lane % 16;")
                    text.line("const i32 beside = column / 8 + j * 2 + lane / 16;")
                    at = f"(deep * {tile.size // _PIECE} + (beside ^ (deep & 7))) * {_PIECE}"
                    text.line(f"LOAD_4_TURNED(right, right_tile, {at});")
                else:
                    text.line("const i32 line = column + j * 16 + lane % 8 + lane / 16 * 8;")
                    text.line("const i32 part = s * 2 + lane / 8 % 2;")
                    text.line(f"LOAD_4(right, right_tile, (line * 4 + (part ^ (line >> 1 & 3))) * {_PIECE});")
                with self._each("p", tile.parts):
                    for half in (0, 1):
                        words = f"right[{2 * half}], right[{2 * half + 1}]"
                        text.line(f"MULTIPLY_ADD({self._of.left}, sums[p][2 * j + {half}], left[p], {words});")

    def _write_result(self) -> None:
        text, kind = self._text, self._of.left
        with self._each("p", self._tile.parts), self._each("h", 2):
            text.line("const i64 down_at = top + row + p * 16 + h * 8 + lane / 4;")
            with text.block("if (down_at < m)"), self._each("j", 4):
                text.line("const i64 column_at = first + column + j * 8 + lane % 4 * 2;")
                text.line("const i64 there = (batch * m + down_at) * n + column_at;")
                elements = [f"sums[p][j][2 * h + {i}]" for i in (0, 1)]
                with text.block("if (n % 2 == 0 && column_at < n)"):
                    values = [
                        text.define("f32", self._finish.value(text, x, f"there + {i}", f"column_at + {i}"))
                        for i, x in enumerate(elements)
                    ]
                    text.line(f"*(GLOBAL u32 *)(c + there) = two_{kind}({', '.join(values)});")
                with text.block("else"):
                    for i, x in enumerate(elements):
                        with text.block(f"if (column_at + {i} < n)"):
                            value = self._finish.value(text, x, f"there + {i}", f"column_at + {i}")
                            text.line(f"c[there + {i}] = {stored(self._of, self._finish, value)};")
