"""Tiles of queries, keys and values: how they come into registers and shared memory, and their products."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from softq.codegen.gpu.dialect.text import Text

HEAD_SIZES = (32, 64, 96, 128)
WARPS = 4
THREADS = WARPS * 32

_PAD = 8
"""Elements of padding behind each row of a tile in shared memory, so that rows begin in different banks."""


@dataclass(frozen=True)
class Shape:
    """What is fixed in a kernel.

    Attributes:
        kind: f16 or bf16: type of queries, keys, values and results.
        width: Head size, one of `HEAD_SIZES`.
        causal: Whether query i sees keys up to i + keys - queries alone.
        masked: Whether there is a mask of bytes.
        online: Whether one pass is made over the keys, else two.
    """

    kind: str
    width: int
    causal: bool = False
    masked: bool = False
    online: bool = False

    @property
    def fragments(self) -> int:
        """Fragments of 16 queries per warp."""
        return 2 if self.width <= HEAD_SIZES[1] else 1

    @property
    def queries(self) -> int:
        """Queries per block."""
        return WARPS * 16 * self.fragments

    @property
    def keys(self) -> int:
        """Keys per tile: scores and sums stay in registers, two stages of keys and of values within 48 KiB."""
        return 32

    @property
    def stride(self) -> int:
        """Elements from one row of a tile in shared memory to the next."""
        return self.width + _PAD


class Tiles:
    """The tiles of one kernel.

    Args:
        shape: What is fixed in it.
        text: Its lines.
        strides: How far apart rows of `query`, `key` and `value` are in global memory.
    """

    def __init__(self, shape: Shape, text: Text, strides: Mapping[str, str]) -> None:
        self._shape, self._text, self._strides = shape, text, strides

    def declare(self) -> None:
        """Declare two stages of keys and of values in shared memory, rows beginning at multiples of 16 bytes."""
        for name in ("key", "value"):
            self._text.line(f"SHARED uint4 {name}_tiles[2][{self._shape.keys * self._shape.stride // 8}];")

    def load_queries(self) -> None:
        """Load the warp's queries into the fragments of the left operand, 0 outside of the tensor."""
        text, fragments, steps = self._text, self._shape.fragments, self._shape.width // 16
        text.line(f"u32 left[{fragments}][{steps}][4];")
        word = f"*(const GLOBAL u32 *)(query + row * {self._strides['query']} + column)"
        text.each(
            "const i64 row = mine + p * 16 + i % 2 * 8;",
            "const i32 column = s * 16 + lane % 4 * 2 + i / 2 * 8;",
            f"left[p][s][i] = row < queries ? {word} : 0u;",
            p=fragments, s=steps, i=4,
        )  # fmt: skip

    @contextlib.contextmanager
    def loop(self, *, with_values: bool) -> Generator[None]:
        """Write the loop over the tiles of keys, double buffered; `at` is the first key of the tile in use."""
        text, names = self._text, ("key", "value") if with_values else ("key",)
        # Barrier: all threads have finished with the tiles of a previous loop.
        text.line("BARRIER();")
        with text.block("if (steps > 0)"):
            self._copy("0", names)
        text.line("COPIES_END();")
        with text.block("for (i32 step = 0; step < steps; step++)"):
            with text.block("if (step + 1 < steps)"):
                self._copy("step + 1", names)
            text.line("COPIES_END();", "COPIES_ARRIVED_BUT(1);", "BARRIER();")
            text.line(f"const i32 at = step * {self._shape.keys};")
            for name in names:
                text.line(f"const LOCAL u16 *{name}_tile = (const LOCAL u16 *){name}_tiles[step % 2];")
            yield
            text.line("BARRIER();")

    def _copy(self, step: str, names: tuple[str, ...]) -> None:
        text, keys, chunks = self._text, self._shape.keys, self._shape.width // 8
        with text.block(f"for (i32 i = THREAD; i < {keys * chunks}; i += {THREADS})", unroll="UNROLL"):
            text.line(f"const i32 row = i / {chunks};", f"const i32 part = i % {chunks};")
            text.line(f"const i64 there = ({step}) * {keys} + row;")
            for name in names:
                into = f"&{name}_tiles[({step}) % 2][row * {self._shape.stride // 8} + part]"
                start = f"{name} + (there < keys ? there : 0) * {self._strides[name]} + part * 8"
                text.line(f"COPY_16({into}, {start}, there < keys);")

    def multiply_keys(self) -> None:
        """Write the products of the queries with the tile's keys, into `scores`."""
        text, shape = self._text, self._shape
        text.line(f"f32 scores[{shape.fragments}][{shape.keys // 8}][4];")
        with text.loops(j=shape.keys // 8):
            zeros = "scores[p][j][0] = scores[p][j][1] = scores[p][j][2] = scores[p][j][3] = 0.0f;"
            text.each(zeros, p=shape.fragments)
            with text.block(f"for (i32 s = 0; s < {shape.width // 16}; s += 2)", unroll="UNROLL"):
                # ldmatrix: 8 keys, and of each 32 elements in four matrices.
                at = f"(j * 8 + lane % 8) * {shape.stride} + s * 16 + lane / 8 * 8"
                text.line("u32 right[4];", f"LOAD_4(right, key_tile, {at});")
                self._multiply_add("scores[p][j]", "left[p][s + {}]")

    def add_values(self) -> None:
        """Write the products of the weights in `shares` with the values, added to `sums`, and with 1, to `total`."""
        text, shape = self._text, self._shape
        ones = 0x3C003C00 if shape.kind == "f16" else 0x3F803F80
        with text.loops(s=shape.keys // 16):
            # Two tiles of eight keys are the two halves of columns of the left fragment.
            text.line(f"u32 held[{shape.fragments}][4];")
            text.each(
                *(f"held[p][{i}] = shares[p][2 * s + {i // 2}][{i % 2}];" for i in range(4)),
                f"MULTIPLY_ADD({shape.kind}, total[p], held[p], {ones:#x}u, {ones:#x}u);",
                p=shape.fragments,
            )
            with text.block(f"for (i32 d = 0; d < {shape.width // 8}; d += 2)", unroll="UNROLL"):
                # ldmatrix.trans: 16 keys in two matrices, and 16 elements of each.
                at = f"(s * 16 + lane % 16) * {shape.stride} + d * 8 + lane / 16 * 8"
                text.line("u32 right[4];", f"LOAD_4_TURNED(right, value_tile, {at});")
                self._multiply_add("sums[p][d + {}]", "held[p]")

    def _multiply_add(self, total: str, left: str) -> None:
        words = ("right[0], right[1]", "right[2], right[3]")
        self._text.each(
            *(f"MULTIPLY_ADD({self._shape.kind}, {total.format(h)}, {left.format(h)}, {words[h]});" for h in (0, 1)),
            p=self._shape.fragments,
        )
