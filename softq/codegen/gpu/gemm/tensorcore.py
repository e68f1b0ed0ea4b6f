"""GEMM of float16 and bfloat16 on tensor cores, accumulated in float32.

A warp tile is half of the block's rows and 32 columns, in accumulator fragments of `mma.sync`. Operands come into
shared memory by `cp.async` of 16 bytes, two stages ahead, and from there into fragments by `ldmatrix`; the 16-byte
chunks of a row are swizzled, so that the eight rows of a matrix are in different banks. Unaligned operands are copied
element by element.

Source: the layout of fragments is PTX's (ISA 8.5, 9.7.14.5, mma.m16n8k16 and ldmatrix); stages and swizzle are those of
NVIDIA's CUTLASS (sm_80 kernels).
"""

from __future__ import annotations

from softq.codegen.gpu.gemm.kernel import GemmKernel

_TILE_K = 32
"""Elements along k per stage."""

_STAGES = 3
"""Stages in shared memory: one in use, two being copied; 48 KiB for the large tile."""

_CHUNK = 8
"""Elements of 16 bytes."""


class TensorCoreGemm(GemmKernel):
    """All rows of f16 or bf16."""

    @property
    def _launch_bounds(self) -> str:
        return "KERNEL_OF_STAGES"

    @property
    def _fragments(self) -> int:
        """Fragments of 16 rows per warp."""
        return self._tile.rows // 2 // 16

    def _write_body(self) -> None:
        text, tile, warp_columns = self._text, self._tile, self._tile.columns // 32
        text.line(
            f"const i32 row = warp / {warp_columns} * {self._fragments * 16};",
            f"const i32 column = warp % {warp_columns} * 32;",
        )
        for name in ("left", "right"):
            text.line(f"SHARED uint4 {name}_tiles[{_STAGES}][{tile.rows * _TILE_K // _CHUNK}];")
        text.line(f"f32 sums[{self._fragments}][4][4];")
        text.each("sums[p][j][i] = 0.0f;", p=self._fragments, j=4, i=4)
        text.line(f"const i64 steps = (k + {_TILE_K - 1}) / {_TILE_K};")
        for stage in range(_STAGES - 1):
            with text.block(f"if ({stage} < steps)"):
                self._copy_stage(str(stage), str(stage))
            text.line("COPIES_END();")
        text.line("i32 at = 0;")
        with text.block("for (i64 step = 0; step < steps; step++)"):
            # Barrier: all threads have finished reading the stage about to be overwritten.
            text.line(f"COPIES_ARRIVED_BUT({_STAGES - 2});", "BARRIER();")
            with text.block(f"if (step + {_STAGES - 1} < steps)"):
                self._copy_stage(f"(step + {_STAGES - 1})", f"(at == 0 ? {_STAGES - 1} : at - 1)")
            text.line("COPIES_END();")
            self._multiply()
            text.line(f"at = at == {_STAGES - 1} ? 0 : at + 1;")
        self._write_result()

    def _copy_stage(self, step: str, stage: str) -> None:
        """Write the asynchronous copies of a stage, zeros outside of the operands."""
        text, tile, chunks = self._text, self._tile, self._tile.columns // _CHUNK
        with text.loops(i=tile.rows * _TILE_K // _CHUNK // tile.threads):
            text.line(f"const i32 piece = i * {tile.threads} + THREAD;")
            self._copy_along_k("left", "mine", "top", "m", "k", step, stage)
            if not self._of.b_is_kn:
                self._copy_along_k("right", "theirs", "first", "n", "pitch", step, stage)
                return
            text.line(
                f"const i32 deep = piece / {chunks};",
                f"const i32 beside = piece % {chunks};",
                f"const i64 below = {step} * {_TILE_K} + deep;",
                f"const i64 columns = n - first - beside * {_CHUNK};",
            )
            spot = f"deep * {chunks} + (beside ^ (deep & 7))"
            start = f"theirs + (below < k && columns > 0 ? below * pitch + first + beside * {_CHUNK} : 0)"
            self._copy_chunk(f"&right_tiles[{stage}][{spot}]", start, "below < k ? columns : 0")

    def _copy_along_k(self, name: str, source: str, begin: str, end: str, pitch: str, step: str, stage: str) -> None:
        row, part, along, left = (f"{name}_{word}" for word in ("row", "part", "along", "left"))
        self._text.line(
            f"const i32 {row} = piece / {_TILE_K // _CHUNK};",
            f"const i32 {part} = piece % {_TILE_K // _CHUNK};",
            f"const i64 {along} = {step} * {_TILE_K} + {part} * {_CHUNK};",
            f"const i64 {left} = {begin} + {row} < {end} ? k - {along} : 0;",
        )
        start = f"{source} + ({left} > 0 ? ({begin} + {row}) * {pitch} + {along} : 0)"
        self._copy_chunk(f"&{name}_tiles[{stage}][{row} * 4 + ({part} ^ ({row} >> 1 & 3))]", start, left)

    def _copy_chunk(self, into: str, start: str, count: str) -> None:
        if self._of.aligned:
            self._text.line(f"COPY_16({into}, {start}, ({count}) > 0);")
        else:
            words = ", ".join(f"halves_2({start} + {2 * i}, ({count}) - {2 * i})" for i in range(4))
            self._text.line(f"*({into}) = FOUR({words});")

    def _multiply(self) -> None:
        text, tile = self._text, self._tile
        for name in ("left", "right"):
            text.line(f"const LOCAL u16 *{name}_tile = (const LOCAL u16 *){name}_tiles[at];")
        swizzled = f"(line * 4 + (part ^ (line >> 1 & 3))) * {_CHUNK}"
        with text.loops(s=_TILE_K // 16):
            text.line(f"u32 left[{self._fragments}][4];")
            text.each(
                "const i32 line = row + p * 16 + lane % 16;",
                "const i32 part = s * 2 + lane / 16;",
                f"LOAD_4(left[p], left_tile, {swizzled});",
                p=self._fragments,
            )
            with text.loops(j=2):
                text.line("u32 right[4];")
                if self._of.b_is_kn:
                    # ldmatrix.trans: 16 elements along k in two matrices, and 16 columns of each.
                    text.line(
                        "const i32 deep = s * 16 + lane % 16;",
                        "const i32 beside = column / 8 + j * 2 + lane / 16;",
                        "LOAD_4_TURNED(right, right_tile, "
                        f"(deep * {tile.columns // _CHUNK} + (beside ^ (deep & 7))) * {_CHUNK});",
                    )
                else:
                    text.line(
                        "const i32 line = column + j * 16 + lane % 8 + lane / 16 * 8;",
                        "const i32 part = s * 2 + lane / 8 % 2;",
                        f"LOAD_4(right, right_tile, {swizzled});",
                    )
                text.each(
                    *(
                        f"MULTIPLY_ADD({self._of.left}, sums[p][2 * j + {half}], left[p], "
                        f"right[{2 * half}], right[{2 * half + 1}]);"
                        for half in (0, 1)
                    ),
                    p=self._fragments,
                )

    def _write_result(self) -> None:
        text = self._text
        elements = {i: (f"sums[p][j][2 * h + {i}]", f"there + {i}", f"column_at + {i}") for i in (0, 1)}
        with text.loops(p=self._fragments, h=2):
            text.line("const i64 down_at = top + row + p * 16 + h * 8 + lane / 4;")
            with text.block("if (down_at < m)"), text.loops(j=4):
                text.line("const i64 column_at = first + column + j * 8 + lane % 4 * 2;")
                text.line("const i64 there = (batch * m + down_at) * n + column_at;")
                with text.block("if (n % 2 == 0 && column_at < n)"):
                    both = [text.define("f32", self._epilogue.value(text, *element)) for element in elements.values()]
                    text.line(f"*(GLOBAL u32 *)(c + there) = two_{self._of.left}({', '.join(both)});")
                with text.block("else"):
                    for i, element in elements.items():
                        with text.block(f"if (column_at + {i} < n)"):
                            text.line(f"c[there + {i}] = {self._apply_epilogue(*element)};")
