"""Tiles of queries, keys and values: how they come into registers and shared memory, and their products."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping

from softq.codegen.gpu.dialect.text import Text


class Tiles:
    """The tiles of one kernel.

    Args:
        kind: f16 or bf16.
        width: Numbers of a head.
        parts: Tiles of 16 queries of a warp.
        keys: Keys of a tile.
        stride: Numbers from one row of a tile in shared memory to the next.
        threads: Threads of a block.
        text: The kernel's lines.
        rows: How far apart rows of `query`, `key` and `value` are in memory.
    """

    def __init__(
        self,
        kind: str,
        width: int,
        parts: int,
        keys: int,
        stride: int,
        threads: int,
        text: Text,
        rows: Mapping[str, str],
    ) -> None:
        self._rows = rows
        self._kind, self._width, self._parts, self._keys = kind, width, parts, keys
        self._stride, self._threads, self._text = stride, threads, text

    def declare(self) -> None:
        """Declare two tiles of keys and two of values in shared memory, rows beginning at multiples of 16 bytes."""
        for name in ("key", "value"):
            self._text.line(f"SHARED uint4 {name}_tiles[2][{self._keys * self._stride // 8}];")

    def load_queries(self) -> None:
        """Read the warp's queries into the fragments of the left operand; queries that are not there are 0."""
        text = self._text
        text.line(f"u32 left[{self._parts}][{self._width // 16}][4];")
        with (
            text.block(f"for (i32 p = 0; p < {self._parts}; p++)", unroll="UNROLL"),
            text.block(f"for (i32 s = 0; s < {self._width // 16}; s++)", unroll="UNROLL"),
            text.block("for (i32 i = 0; i < 4; i++)", unroll="UNROLL"),
        ):
            text.line("const i64 row = mine + p * 16 + i % 2 * 8;")
            text.line("const i32 column = s * 16 + lane % 4 * 2 + i / 2 * 8;")
            word = f"*(const GLOBAL u32 *)(query + row * {self._rows['query']} + column)"
            text.line(f"left[p][s][i] = row < queries ? {word} : 0u;")

    @contextlib.contextmanager
    def along(self, *, with_values: bool) -> Generator[None]:
        """Write the loop along the tiles: the next one is on its way while `at`, the first key of this one, is used."""
        text, names = self._text, ("key", "value") if with_values else ("key",)
        # Whoever is still at the tiles of a loop before this one.
        text.line("BARRIER();")
        with text.block("if (steps > 0)"):
            self._copy("0", names)
        text.line("COPIES_END();")
        with text.block("for (i32 step = 0; step < steps; step++)"):
            with text.block("if (step + 1 < steps)"):
                self._copy("step + 1", names)
            text.line("COPIES_END();")
            text.line("COPIES_ARRIVED_BUT(1);")
            text.line("BARRIER();")
            text.line(f"const i32 at = step * {self._keys};")
            for name in names:
                text.line(f"const LOCAL u16 *{name}_tile = (const LOCAL u16 *){name}_tiles[step % 2];")
            yield
            text.line("BARRIER();")

    def _copy(self, step: str, names: tuple[str, ...]) -> None:
        text, chunks = self._text, self._width // 8
        with text.block(f"for (i32 i = THREAD; i < {self._keys * chunks}; i += {self._threads})", unroll="UNROLL"):
            text.line(f"const i32 row = i / {chunks};")
            text.line(f"const i32 part = i % {chunks};")
            text.line(f"const i64 there = ({step}) * {self._keys} + row;")
            for name in names:
                into = f"&{name}_tiles[({step}) % 2][row * {self._stride // 8} + part]"
                start = f"{name} + (there < keys ? there : 0) * {self._rows[name]} + part * 8"
                text.line(f"COPY_16({into}, {start}, there < keys);")

    def multiply_keys(self) -> None:
        """Write the products of the queries with the tile's keys, into `scores`."""
        text = self._text
        text.line(f"f32 scores[{self._parts}][{self._keys // 8}][4];")
        with text.block(f"for (i32 j = 0; j < {self._keys // 8}; j++)", unroll="UNROLL"):
            with self._each_part():
                text.line("scores[p][j][0] = scores[p][j][1] = scores[p][j][2] = scores[p][j][3] = 0.0f;")
            with text.block(f"for (i32 s = 0; s < {self._width // 16}; s += 2)", unroll="UNROLL"):
                text.line("u32 right[4];")
                # Eight keys, and of each 32 numbers in four matrices.
                at = f"(j * 8 + lane % 8) * {self._stride} + s * 16 + lane / 8 * 8"
                text.line(f"LOAD_4(right, key_tile, {at});")
                with self._each_part():
                    for half in (0, 1):
                        words = f"right[{2 * half}], right[{2 * half + 1}]"
                        text.line(f"MULTIPLY_ADD({self._kind}, scores[p][j], left[p][s + {half}], {words});")

    def add_values(self) -> None:
        """Write the products of the weights in `shares` with the values, added to `sums`, and with 1, to `total`."""
        text = self._text
        ones = 0x3C003C00 if self._kind == "f16" else 0x3F803F80
        with text.block(f"for (i32 s = 0; s < {self._keys // 16}; s++)", unroll="UNROLL"):
            # Two tiles of eight keys are the left operand's two halves of columns.
            text.line(f"u32 held[{self._parts}][4];")
            with self._each_part():
                for i in range(4):
                    text.line(f"held[p][{i}] = shares[p][2 * s + {i // 2}][{i % 2}];")
                text.line(f"MULTIPLY_ADD({self._kind}, total[p], held[p], {ones:#x}u, {ones:#x}u);")
            with text.block(f"for (i32 d = 0; d < {self._width // 8}; d += 2)", unroll="UNROLL"):
                text.line("u32 right[4];")
                # Sixteen keys in two matrices, and 16 numbers of each.
                at = f"(s * 16 + lane % 16) * {self._stride} + d * 8 + lane / 16 * 8"
                text.line(f"LOAD_4_TURNED(right, value_tile, {at});")
                with self._each_part():
                    for half in (0, 1):
                        words = f"right[{2 * half}], right[{2 * half + 1}]"
                        text.line(f"MULTIPLY_ADD({self._kind}, sums[p][d + {half}], held[p], {words});")

    def _each_part(self) -> contextlib.AbstractContextManager[None]:
        return self._text.block(f"for (i32 p = 0; p < {self._parts}; p++)", unroll="UNROLL")
