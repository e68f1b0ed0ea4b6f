"""Attention of float32 in one kernel, on ordinary cores: memory O(N), and the codes are the row program's.

A block of threads takes a tile of queries and goes along the keys in tiles, once for each pass over the row that the
program needs: it multiplies the tiles, does to the scores what the graph does to them, and gathers what the program's
reductions ask for. In the last pass the scores become weights, which go through shared memory into the product with the
values. Each score and each sum is one chain of multiply-adds in the order of the inner dimension, as in `products`.

There are two forms, which give the same numbers: one for many rows, and one for up to `FEW`, as of a single query, in
which all threads of a block have the same rows and other keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from softq.codegen.gpu.attention.score_mod import COLUMNS, Function, Middle, applied, places
from softq.codegen.gpu.dialect.text import Text, pruned
from softq.rowprog import Program

THREADS = 128
FEW = 8
"""Rows of a matrix of keys for which the form of few rows is the one to take."""

WIDEST = 128
"""Columns of the values, which are sums in registers."""

SIZES = ("rows", "keys", "heads", "query_row", "query_outer", "query_inner", "key_row", "key_outer", "key_inner",
         "value_row", "value_outer", "value_inner", "queries", "score_heads", "result_heads")  # fmt: skip
"""The kernel's first numbers: rows for each matrix of keys, length of a row of scores, heads of the keys; how far apart
in an operand are rows, and matrices: number i starts at i // heads times `outer` and i % heads times `inner`; queries
and heads of the scores, and heads of the result."""

STRIDES = ("valid_outer", "valid_head", "valid_query", "valid_element")

_PAD = 4
"""Numbers behind each row of a turned tile: rows start in other banks, at multiples of 16 bytes."""


@dataclass(frozen=True)
class Spec:
    """What is fixed in a kernel.

    Attributes:
        width: Numbers of a query and of a key.
        columns: Numbers of a value.
        transposed: Whether keys are given as [keys, width], else as [width, keys].
        program: The row program.
        max_length: Greatest length of a row that its proof covers.
        functions: What is done to a score before it.
        finish: What is done to the second product's elements, or None.
        at_hand: For each argument of `finish` that is at hand its name: `product`, or a scalar output of the program.
        to_bsnh: Whether the result has its heads behind the rows.
        sizes: Names of the further numbers that functions need.
    """

    width: int
    columns: int
    transposed: bool
    program: Program
    max_length: int
    functions: tuple[Function, ...]
    finish: Function | None
    at_hand: Mapping[int, str]
    to_bsnh: bool
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class Tile:
    """How a block's work is spread over its threads.

    Attributes:
        each: Rows of a thread: as many as its registers have room for.
        lanes: Threads that share rows.
        inner: Numbers of each query and key, and values, that are in shared memory at once.
        pad: Numbers behind the rows of a turned tile of queries: rows start in other banks, at multiples of 16 bytes.
    """

    each: int
    lanes: int
    inner: int
    pad: int

    @property
    def queries(self) -> int:
        """Rows of a block."""
        return THREADS // self.lanes * self.each

    @property
    def keys(self) -> int:
        """Keys and values that are gone along at once."""
        return self.lanes * COLUMNS


def tiles(spec: Spec) -> tuple[Tile, Tile]:
    """Return the tiles of the form of few rows, and of the one of many."""
    # All lanes read the same few queries, so that their banks do not matter, and the program's tables need the room.
    return Tile(FEW, THREADS, 8, 0), Tile(8 if spec.columns <= WIDEST // 2 else 4, 16, 16, _PAD)


def kernel(spec: Spec, symbol: str, tile: Tile) -> str:
    """Return the kernel.

        void symbol(const f32 *q, const f32 *k, const f32 *v, f32 *out, const T *others..., [const u8 *valid,]
                    const P *param..., f32 *scalar..., i64 SIZES..., [i64 STRIDES...,] i64 sizes...)

    A block takes `tile.queries` rows of a matrix of keys.
    """
    text = Text()
    writer = _Writer(spec, tile, text)
    writer.write(symbol)
    return writer.middle.constants(symbol) + pruned(str(text))


class _Writer:
    def __init__(self, spec: Spec, tile: Tile, text: Text) -> None:
        self._spec, self._tile, self._text = spec, tile, text
        self.middle = Middle(spec.program, spec.max_length, spec.functions, tile.each, tile.lanes, text)
        each = -(-spec.columns // tile.lanes)
        # Numbers of a value that a thread sums: `near` next to one another, and the same further on.
        self._each = each if each <= 2 else -(-each // 4) * 4
        self._near = min(self._each, 4)
        self._row, self._inner = tile.queries + tile.pad, tile.inner

    def write(self, symbol: str) -> None:
        spec, text, middle = self._spec, self._text, self.middle
        names = [f"const GLOBAL f32 *RESTRICT {name}" for name in "qkv"] + ["GLOBAL f32 *RESTRICT out"]
        names += middle.pointers()
        names += () if spec.finish is None else spec.finish.pointers()
        names += [f"GLOBAL f32 *RESTRICT scalar_{name}" for name in middle.scalars]
        names += [f"i64 {name}" for name in (*SIZES, *(STRIDES if spec.program.masked else ()), *spec.sizes)]
        with text.block(f"KERNEL_OF_TWO({THREADS}) {symbol}({', '.join(names)})"):
            self._start(symbol)
            passes = middle.passes
            for phase in passes:
                middle.begin(phase)
                with text.block(f"for (i64 start = 0; start < keys; start += {self._tile.keys})"):
                    self._scores()
                    middle.step(phase)
                    if phase is passes[-1]:
                        self._share()
                        self._add_values()
                middle.end()
            self._finish()

    def _start(self, symbol: str) -> None:
        text = self._text
        text.line(f"EXCHANGE({THREADS});")
        text.line(f"const i32 lane = THREAD % {self._tile.lanes};")
        text.line(f"const i32 part = THREAD / {self._tile.lanes} * {self._tile.each};")
        text.line("const i32 length = (i32)keys;")
        text.line(f"const i64 blocks = (rows + {self._tile.queries - 1}) / {self._tile.queries};")
        text.line("const i64 matrix = GROUP / blocks;")
        text.line(f"const i64 top = GROUP % blocks * {self._tile.queries};")
        for name, pointer in (("query", "q"), ("key", "k"), ("value", "v")):
            there = f"matrix / heads * {name}_outer + matrix % heads * {name}_inner"
            text.line(f"const GLOBAL f32 *{name} = {pointer} + {there};")
        parts = {
            "left": (self._inner, self._row),
            "right": (self._inner, self._tile.keys + _PAD),
            "shares": (self._tile.keys, self._row),
        }
        for name, (rows, columns) in {**parts, "held": (self._inner, self._each * self._tile.lanes)}.items():
            text.line(f"SHARED uint4 {name}_words[{rows * columns // 4}];")
            text.line(f"LOCAL f32 *{name} = (LOCAL f32 *){name}_words;")
        text.line(f"f32 sums[{self._tile.each}][{self._each}];")
        with self._sums():
            text.line("sums[i][c] = 0.0f;")
        self.middle.start(symbol, THREADS)

    @contextlib.contextmanager
    def _sums(self) -> Generator[None]:
        rows = self._text.block(f"for (i32 i = 0; i < {self._tile.each}; i++)", unroll="UNROLL")
        with rows, self._text.block(f"for (i32 c = 0; c < {self._each}; c++)", unroll="UNROLL"):
            yield

    def _scores(self) -> None:
        """Write the product with a tile of keys."""
        spec, text = self._spec, self._text
        text.line(f"f32 scores[{self._tile.each}][{COLUMNS}] = {{{{0.0f}}}};")
        with text.block(f"for (i32 deep = 0; deep < {spec.width}; deep += {self._inner})"):
            self._turned("left", "query", "query_row", "top", "rows", self._tile.queries, self._row)
            if spec.transposed:
                self._turned("right", "key", "key_row", "start", "keys", self._tile.keys, self._tile.keys + _PAD)
            else:
                keys, stride = self._tile.keys, self._tile.keys + _PAD
                with text.block(f"for (i32 n = THREAD; n < {self._inner * keys}; n += {THREADS})", unroll="UNROLL"):
                    text.line(f"const i64 there = start + n % {keys};")
                    text.line(f"const i32 at = deep + n / {keys};")
                    inside = f"there < keys{self._within('at', spec.width)}"
                    value = f"{inside} ? key[at * key_row + there] : 0.0f"
                    text.line(f"right[n / {keys} * {stride} + n % {keys}] = {value};")
            text.line("BARRIER();")
            with text.block(f"for (i32 p = 0; p < {self._inner}; p++)", unroll="UNROLL_4"):
                self._words("a", f"left + p * {self._row} + part", self._tile.each)
                self._words("b", f"right + p * {self._tile.keys + _PAD} + lane * {COLUMNS}", COLUMNS)
                rows = text.block(f"for (i32 i = 0; i < {self._tile.each}; i++)", unroll="UNROLL")
                with rows, text.block(f"for (i32 j = 0; j < {COLUMNS}; j++)", unroll="UNROLL"):
                    text.line("scores[i][j] = fma(a[i], b[j], scores[i][j]);")
            text.line("BARRIER();")

    def _within(self, at: str, width: int) -> str:
        return "" if width % self._inner == 0 else f" && {at} < {width}"

    def _turned(self, tile: str, source: str, stride: str, first: str, end: str, rows: int, apart: int) -> None:
        """Copy some columns of the rows of an operand into a tile, turned; what is not there is 0."""
        text, width = self._text, self._spec.width
        each = 4 if width % 4 == 0 else 1
        parts = self._inner // each
        with text.block(f"for (i32 n = THREAD; n < {rows * parts}; n += {THREADS})", unroll="UNROLL"):
            text.line(f"const i64 there = {first} + n / {parts};")
            text.line(f"const i32 at = n % {parts} * {each};")
            text.line(f"const i32 to = at * {apart} + n / {parts};")
            x = f"{source} + there * {stride} + deep + at"
            inside = f"there < {end}{self._within('deep + at', width)}"
            if each == 1:
                text.line(f"{tile}[to] = {inside} ? *({x}) : 0.0f;")
                return
            text.line(f"const uint4 four = {inside} ? *(const GLOBAL uint4 *)({x}) : FOUR(0u, 0u, 0u, 0u);")
            for i, word in enumerate("xyzw"):
                text.line(f"{tile}[to + {i * apart}] = FLOAT(four.{word});")

    def _words(self, name: str, pointer: str, count: int) -> None:
        """Read numbers next to one another from shared memory, 16 bytes at once where there are as many."""
        text = self._text
        if count < 4:
            text.line(f"const f32 {name}[{count}] = {{{', '.join(f'({pointer})[{i}]' for i in range(count))}}};")
            return
        parts = [text.define("uint4", f"((const LOCAL uint4 *)({pointer}))[{i}]", "four") for i in range(count // 4)]
        values = ", ".join(f"FLOAT({part}.{word})" for part in parts for word in "xyzw")
        text.line(f"const f32 {name}[{count}] = {{{values}}};")

    def _share(self) -> None:
        """Let all threads of the block have the weights, turned."""
        text = self._text
        with text.block(f"for (i32 j = 0; j < {COLUMNS}; j++)", unroll="UNROLL"):
            text.line(f"LOCAL uint4 *to = (LOCAL uint4 *)(shares + (lane * {COLUMNS} + j) * {self._row} + part);")
            for h in range(self._tile.each // 4):
                four = ", ".join(f"BITS(scores[{h * 4 + i}][j])" for i in range(4))
                text.line(f"to[{h}] = FOUR({four});")

    def _add_values(self) -> None:
        """Write the product of the weights with a tile of values, added to `sums`."""
        spec, text, whole = self._spec, self._text, self._each * self._tile.lanes
        vector = spec.columns % 4 == 0
        each = 4 if vector else 1
        parts = whole // each
        with text.block(f"for (i32 deep = 0; deep < {self._tile.keys}; deep += {self._inner})"):
            with text.block(f"for (i32 n = THREAD; n < {self._inner * parts}; n += {THREADS})", unroll="UNROLL"):
                text.line(f"const i64 there = start + deep + n / {parts};")
                text.line(f"const i32 at = n % {parts} * {each};")
                x = "value + there * value_row + at"
                inside = "there < keys" + (f" && at < {spec.columns}" if whole != spec.columns else "")
                if vector:
                    word = f"{inside} ? *(const GLOBAL uint4 *)({x}) : FOUR(0u, 0u, 0u, 0u)"
                    text.line(f"held_words[n] = {word};")
                else:
                    text.line(f"held[n] = {inside} ? *({x}) : 0.0f;")
            text.line("BARRIER();")
            with text.block(f"for (i32 p = 0; p < {self._inner}; p++)", unroll="UNROLL_4"):
                self._words("a", f"shares + (deep + p) * {self._row} + part", self._tile.each)
                for g in range(self._each // self._near):
                    at = f"held + p * {whole} + {g * self._tile.lanes * self._near} + lane * {self._near}"
                    self._words(f"b{g}", at, self._near)
                with text.block(f"for (i32 i = 0; i < {self._tile.each}; i++)", unroll="UNROLL"):
                    for c in range(self._each):
                        b = f"b{c // self._near}[{c % self._near}]"
                        text.line(f"sums[i][{c}] = fma(a[i], {b}, sums[i][{c}]);")
            text.line("BARRIER();")

    def _finish(self) -> None:
        spec, text, middle = self._spec, self._text, self.middle
        with middle.rows(), text.block("if (top + part + i < rows)"):
            place = middle.scalars_of(len(middle.passes) + 1)
            with text.block("if (lane == 0)"):
                for name in middle.scalars:
                    text.line(f"scalar_{name}[row] = {middle.value(place, name)};")
            item = "row"
            if spec.to_bsnh:
                item = "(row / queries / result_heads * queries + row % queries) * result_heads"
                item += " + row / queries % result_heads"
            text.line(f"const i64 item = {item};")
            values = {name: text.define("f32", middle.value(place, name), "scalar") for name in middle.scalars}
            bases: list[str] = []
            if spec.finish is not None:
                places(text, spec.finish, "item", lambda _, base: bases.append(text.define("i64", base, "base")))
            for c in range(self._each):
                with text.block(""):
                    self._write(c, values, bases)

    def _write(self, c: int, values: Mapping[str, str], bases: Sequence[str]) -> None:
        """Write one of the thread's numbers of a row of the result."""
        spec, text = self._spec, self._text
        at = f"{c // self._near * self._tile.lanes * self._near + c % self._near} + lane * {self._near}"
        text.line(f"const i32 column = {at};")
        with text.block(f"if (column < {spec.columns})"):
            x = f"sums[i][{c}]"
            if spec.finish is not None:
                known = {p: x if name == "product" else values[name] for p, name in spec.at_hand.items()}
                x = applied(text, spec.finish, known, lambda n: bases[n])
            text.line(f"out[item * {spec.columns} + column] = {x};")
