"""The product of float32 matrices over packed panels, as text: a block of threads for a tile of the result.

The right operand lies in panels of `COLUMNS` columns, as the kernels of processors have it, so that neighbouring
threads read neighbouring numbers. Each element is one chain of multiply-adds in the order of the inner dimension.
"""

from __future__ import annotations

import contextlib

from softq.targets._gpu.text import Text

ROWS, COLUMNS = 64, 64
THREADS = 256
_INNER, _EACH = 16, 4


def product(symbol: str) -> str:
    """Return the kernel: void symbol(a, panels, result, m, k, n, ahead), a block for each tile of each matrix.

    `ahead` is how many rows of the left operand lie between two matrices: 0 if all have the same.
    """
    text = Text()
    names = "const GLOBAL f32 *RESTRICT a, const GLOBAL f32 *RESTRICT b, GLOBAL f32 *RESTRICT c"
    with text.block(f"KERNEL({THREADS}) {symbol}({names}, i64 m, i64 k, i64 n, i64 ahead)"):
        text.line(f"const i64 panels = (n + {COLUMNS - 1}) / {COLUMNS};")
        text.line(f"const i64 blocks = (m + {ROWS - 1}) / {ROWS};")
        text.line("const i64 batch = GROUP / (panels * blocks);")
        text.line("const i64 within = GROUP % (panels * blocks);")
        text.line("const i64 panel = within / blocks;")
        text.line(f"const i64 top = within % blocks * {ROWS};")
        text.line(f"const i32 across = THREAD % {COLUMNS // _EACH};")
        text.line(f"const i32 down = THREAD / {COLUMNS // _EACH};")
        text.line(f"SHARED f32 left[{_INNER}][{ROWS + 1}];")
        text.line(f"SHARED f32 right[{_INNER}][{COLUMNS}];")
        text.line("const GLOBAL f32 *mine = a + (batch * ahead + top) * k;")
        text.line(f"const GLOBAL f32 *theirs = b + (batch * panels + panel) * k * {COLUMNS};")
        text.line(f"f32 sums[{_EACH}][{_EACH}] = {{{{0.0f}}}};")
        with text.block(f"for (i64 start = 0; start < k; start += {_INNER})"):
            with text.block(f"for (i32 i = THREAD; i < {ROWS * _INNER}; i += {THREADS})", unroll="UNROLL"):
                text.line(f"const i32 row = i / {_INNER};")
                text.line(f"const i64 at = start + i % {_INNER};")
                text.line(f"left[i % {_INNER}][row] = top + row < m && at < k ? mine[row * k + at] : 0.0f;")
            with text.block(f"for (i32 i = THREAD; i < {COLUMNS * _INNER}; i += {THREADS})", unroll="UNROLL"):
                text.line(f"const i64 at = start + i / {COLUMNS};")
                text.line(
                    f"right[i / {COLUMNS}][i % {COLUMNS}] = at < k ? theirs[at * {COLUMNS} + i % {COLUMNS}] : 0.0f;"
                )
            text.line("BARRIER();")
            with text.block(f"for (i32 p = 0; p < {_INNER}; p++)", unroll="UNROLL"), _each(text, "i"), _each(text, "j"):
                x, y = f"left[p][down * {_EACH} + i]", f"right[p][across * {_EACH} + j]"
                text.line(f"sums[i][j] = fma({x}, {y}, sums[i][j]);")
            text.line("BARRIER();")
        with _each(text, "i"), _each(text, "j"):
            text.line(f"const i64 row = top + down * {_EACH} + i;")
            text.line(f"const i64 column = panel * {COLUMNS} + across * {_EACH} + j;")
            with text.block("if (row < m && column < n)"):
                text.line("c[(batch * m + row) * n + column] = sums[i][j];")
    return str(text)


def _each(text: Text, name: str) -> contextlib.AbstractContextManager[None]:
    return text.block(f"for (i32 {name} = 0; {name} < {_EACH}; {name}++)", unroll="UNROLL")
