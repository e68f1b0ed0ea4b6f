"""Attention of float16 in a graph: the kernel on tensor cores, with the graph's score_mod and memory layout.

Scores are float32 until they are codes: the graph rounds them to float16 after the product and after each function. A
row without weights is NaN, as the graph's division by 0 is.
"""

from __future__ import annotations

from softq.codegen.gpu.attention.codes import Codes, codes_of
from softq.codegen.gpu.attention.codes_kernel import AttentionWriter
from softq.codegen.gpu.attention.simt import SIZES, Spec
from softq.codegen.gpu.attention.tiles import Shape
from softq.codegen.gpu.dialect.text import F32, literal
from softq.codegen.gpu.rows.load_store import STRIDES
from softq.compiler.tir.expressions import mentions

_OWN = {"keys": "length", "queries": "each"}
"""Numbers of `SIZES` whose names have another meaning here."""


def shape_of(spec: Spec) -> Shape:
    """Return the shape of the kernel."""
    return Shape("f16", spec.width, masked=spec.program.masked)


def write_kernel(spec: Spec, symbol: str) -> str:
    """Return the kernel: `simt.write_kernel` for operands and results of float16, without scalars.

    Raises:
        RefusalError: weights are no codes of a scaled distance with a table that is known.
    """
    return _Writer(codes_of(spec.program), spec).write(symbol)


class _Writer(AttentionWriter):
    EMPTY = literal(float("nan"), F32)

    def __init__(self, codes: Codes, spec: Spec) -> None:
        super().__init__(codes, shape_of(spec), {name: f"{name}_row" for name in ("query", "key", "value")})
        self._spec = spec

    def parameters(self) -> list[str]:
        spec = self._spec
        names = [f"const GLOBAL u16 *RESTRICT {name}" for name in "qkv"] + ["GLOBAL u16 *RESTRICT out"]
        names += [pointer for function in spec.functions for pointer in function.pointers()]
        names += ["const GLOBAL u8 *RESTRICT valid"] * spec.program.masked
        numbers = [_OWN.get(name, name) for name in SIZES] + [*STRIDES] * spec.program.masked
        return names + [f"i64 {name}" for name in (*numbers, *spec.sizes)]

    def locate(self) -> None:
        text, spec = self._text, self._spec
        text.line("const i32 queries = (i32)rows;", "const i32 keys = (i32)length;")
        text.line(f"const f32 rate = {literal(self._codes.rate, F32)};")
        text.line(f"const i64 blocks = (rows + {self._shape.queries - 1}) / {self._shape.queries};")
        text.line("const i64 matrix = GROUP / blocks;")
        self.locate_rows()
        for name, pointer in (("query", "q"), ("key", "k"), ("value", "v")):
            there = f"matrix / heads * {name}_outer + matrix % heads * {name}_inner"
            text.line(f"const GLOBAL u16 *{name} = {pointer} + {there};")
        arrays = [f"base{k}_{n}" for k, f in enumerate(spec.functions) for n in range(len(f.reads))]
        for name in [*arrays, *["seen"] * spec.program.masked]:
            text.line(f"i64 {name}[{self._shape.fragments}][2];")
        if not arrays and not spec.program.masked:
            return
        with text.loops(**self._rows):
            text.line("const i32 row = mine + p * 16 + h * 8;")
            text.line("const i64 whole = matrix * rows + (row < queries ? row : queries - 1);")
            for k, function in enumerate(spec.functions):
                for n, base in function.bases(text, "whole"):
                    text.line(f"base{k}_{n}[p][h] = {base};")
            if spec.program.masked:
                there = "whole / each / score_heads * valid_outer + whole / each % score_heads * valid_head"
                text.line(f"seen[p][h] = {there} + whole % each * valid_query;")

    def change_scores(self) -> None:
        text, functions = self._text, self._spec.functions
        if not functions:
            return
        placed = any(f.reads or mentions(f.value, f.column) for f in functions)
        with text.loops(**self._scores):
            if placed:
                text.line("const i32 column = at + j * 8 + lane % 4 * 2 + i;")
            with text.block("if (column < keys)" if placed else ""):
                x = "scores[p][j][2 * h + i]"
                for k, function in enumerate(functions):
                    score = {next(iter(function.held)): x}
                    x = function.apply(text, score, lambda n, k=k: f"base{k}_{n}[p][h]", widen=True)
                text.line(f"scores[p][j][2 * h + i] = {x};")

    def is_masked(self) -> str:
        return "valid[seen[p][h] + column * valid_element] == 0"

    def row_of_result(self) -> str:
        item = "(matrix * rows + row)"
        if self._spec.to_bsnh:
            token = f"{item} / each / result_heads * each + {item} % each"
            item = f"(({token}) * result_heads + {item} / each % result_heads)"
        return f"out + {item} * {self._shape.width}"
