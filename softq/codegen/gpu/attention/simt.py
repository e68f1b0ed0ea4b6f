"""SIMT attention of float32 in one kernel: memory O(N), and the codes are the row program's.

A thread block takes a tile of queries and loops over tiles of keys, once per pass over the row that the program needs:
it multiplies the tiles, applies the graph's score_mod, and accumulates the program's reductions. In the last pass the
scores become weights, which go through shared memory into the product with the values. Each score and each sum is one
chain of multiply-adds in the order of the inner dimension, as in `gemm.simt`.

There are two forms, which give the same numbers: one for many rows, and one for up to `FEW_ROWS`, as of a single query,
in which all threads of a block have the same rows and different keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softq.codegen.gpu.attention.elementwise import Function
from softq.codegen.gpu.attention.score_mod import COLUMNS, ScoreMod
from softq.codegen.gpu.dialect.text import Text, pruned
from softq.codegen.gpu.rows.load_store import STRIDES
from softq.codegen.gpu.rows.tables import constants
from softq.rowprog import Program

THREADS = 128
FEW_ROWS = 8
"""Most rows per matrix of keys for which the form of few rows is the one to take."""

MOST_COLUMNS = 128
"""Most columns of the values, which are accumulated in registers."""

SIZES = ("rows", "keys", "heads", "query_row", "query_outer", "query_inner", "key_row", "key_outer", "key_inner",
         "value_row", "value_outer", "value_inner", "queries", "score_heads", "result_heads")  # fmt: skip
"""The kernel's first numbers: rows for each matrix of keys, length of a row of scores, heads of the keys; how far apart
in an operand are rows, and matrices: number i starts at i // heads times `outer` and i % heads times `inner`; queries
and heads of the scores, and heads of the result."""

_PAD = 4
"""Elements of padding behind each row of a transposed tile: rows start in other banks, at multiples of 16 bytes."""


@dataclass(frozen=True)
class Spec:
    """What is fixed in a kernel.

    Attributes:
        width: Elements of a query and of a key.
        columns: Elements of a value.
        transposed: Whether keys are given as [keys, width], else as [width, keys].
        program: The row program.
        max_length: Greatest length of a row that its proof covers.
        functions: What is done to a score before it.
        epilogue: What is done to the second product's elements, or None.
        registers: Arguments of `epilogue` that are in registers: `product`, or the name of a scalar output.
        to_bsnh: Whether the layout of the result is BSNH, else BNSH.
        sizes: Names of the further numbers that functions need.
    """

    width: int
    columns: int
    transposed: bool
    program: Program
    max_length: int
    functions: tuple[Function, ...]
    epilogue: Function | None
    registers: Mapping[int, str]
    to_bsnh: bool
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class Tile:
    """How a block's work is spread over its threads.

    Attributes:
        each: Rows per thread: as many as its registers have room for.
        lanes: Threads that share rows.
        inner: Elements of each query and key, and values, per stage in shared memory.
        pad: Elements of padding behind the rows of a transposed tile of queries, as `_PAD`.
    """

    each: int
    lanes: int
    inner: int
    pad: int

    @property
    def queries(self) -> int:
        """Rows per block."""
        return THREADS // self.lanes * self.each

    @property
    def keys(self) -> int:
        """Keys and values per tile."""
        return self.lanes * COLUMNS


def choose_tiles(spec: Spec) -> tuple[Tile, Tile]:
    """Return the tiles of the form of few rows, and of the one of many."""
    # Few rows: all lanes load the same queries (a broadcast, no bank conflict), and the program's tables need the room.
    return Tile(FEW_ROWS, THREADS, 8, 0), Tile(8 if spec.columns <= MOST_COLUMNS // 2 else 4, 16, 16, _PAD)


def write_kernel(spec: Spec, symbol: str, tile: Tile) -> str:
    """Return the kernel.

        void symbol(const f32 *q, const f32 *k, const f32 *v, f32 *out, const T *others..., [const u8 *valid,]
                    const P *param..., f32 *scalar..., i64 SIZES..., [i64 STRIDES...,] i64 sizes...)

    A block takes `tile.queries` rows of a matrix of keys.
    """
    return _Writer(spec, tile).write(symbol)


class _Writer:
    def __init__(self, spec: Spec, tile: Tile) -> None:
        self._spec, self._tile, self._text = spec, tile, Text()
        self._score_mod = ScoreMod(spec.program, spec.max_length, spec.functions, tile.each, tile.lanes, self._text)
        each = -(-spec.columns // tile.lanes)
        # Columns of the values per thread, in groups of `vector` contiguous ones.
        self._each = each if each <= 2 else -(-each // 4) * 4
        self._vector = min(self._each, 4)
        self._row, self._inner = tile.queries + tile.pad, tile.inner

    def write(self, symbol: str) -> str:
        spec, text, mod = self._spec, self._text, self._score_mod
        names = [f"const GLOBAL f32 *RESTRICT {name}" for name in "qkv"] + ["GLOBAL f32 *RESTRICT out"]
        names += [*mod.pointers(), *(() if spec.epilogue is None else spec.epilogue.pointers())]
        names += [f"GLOBAL f32 *RESTRICT scalar_{name}" for name in mod.scalars]
        names += [f"i64 {name}" for name in (*SIZES, *(STRIDES if spec.program.masked else ()), *spec.sizes)]
        with text.block(f"KERNEL_OF_TWO({THREADS}) {symbol}({', '.join(names)})"):
            self._start(symbol)
            passes = mod.passes
            for phase in passes:
                mod.begin(phase)
                with text.block(f"for (i64 start = 0; start < keys; start += {self._tile.keys})"):
                    self._multiply_keys()
                    mod.step(phase)
                    if phase is passes[-1]:
                        self._store_weights()
                        self._add_values()
                mod.end()
            self._write_result()
        return constants(mod.program, symbol) + pruned(str(text))

    def _start(self, symbol: str) -> None:
        text, tile = self._text, self._tile
        text.line(
            f"EXCHANGE({THREADS});",
            f"const i32 lane = THREAD % {tile.lanes};",
            f"const i32 part = THREAD / {tile.lanes} * {tile.each};",
            "const i32 length = (i32)keys;",
            f"const i64 blocks = (rows + {tile.queries - 1}) / {tile.queries};",
            "const i64 matrix = GROUP / blocks;",
            f"const i64 top = GROUP % blocks * {tile.queries};",
        )
        for name, pointer in (("query", "q"), ("key", "k"), ("value", "v")):
            there = f"matrix / heads * {name}_outer + matrix % heads * {name}_inner"
            text.line(f"const GLOBAL f32 *{name} = {pointer} + {there};")
        shared = {
            "left": self._inner * self._row,
            "right": self._inner * (tile.keys + _PAD),
            "shares": tile.keys * self._row,
            "held": self._inner * self._each * tile.lanes,
        }
        for name, elements in shared.items():
            text.line(f"SHARED uint4 {name}_words[{elements // 4}];")
            text.line(f"LOCAL f32 *{name} = (LOCAL f32 *){name}_words;")
        text.line(f"f32 sums[{tile.each}][{self._each}];")
        text.each("sums[i][c] = 0.0f;", i=tile.each, c=self._each)
        self._score_mod.start(symbol, THREADS)

    def _multiply_keys(self) -> None:
        spec, text = self._spec, self._text
        text.line(f"f32 scores[{self._tile.each}][{COLUMNS}] = {{{{0.0f}}}};")
        with text.block(f"for (i32 deep = 0; deep < {spec.width}; deep += {self._inner})"):
            keys, stride = self._tile.keys, self._tile.keys + _PAD
            self._transpose("left", "query", "query_row", "top", "rows", self._tile.queries, self._row)
            if spec.transposed:
                self._transpose("right", "key", "key_row", "start", "keys", keys, stride)
            else:
                with text.block(f"for (i32 n = THREAD; n < {self._inner * keys}; n += {THREADS})", unroll="UNROLL"):
                    text.line(f"const i64 there = start + n % {keys};", f"const i32 at = deep + n / {keys};")
                    inside = f"there < keys{self._within('at', spec.width)}"
                    value = f"{inside} ? key[at * key_row + there] : 0.0f"
                    text.line(f"right[n / {keys} * {stride} + n % {keys}] = {value};")
            text.line("BARRIER();")
            with text.block(f"for (i32 p = 0; p < {self._inner}; p++)", unroll="UNROLL_4"):
                self._load_shared("a", f"left + p * {self._row} + part", self._tile.each)
                self._load_shared("b", f"right + p * {stride} + lane * {COLUMNS}", COLUMNS)
                text.each("scores[i][j] = fma(a[i], b[j], scores[i][j]);", i=self._tile.each, j=COLUMNS)
            text.line("BARRIER();")

    def _within(self, at: str, width: int) -> str:
        return "" if width % self._inner == 0 else f" && {at} < {width}"

    def _transpose(self, tile: str, source: str, stride: str, first: str, end: str, rows: int, pitch: int) -> None:
        """Write the predicated copy of a stage of an operand's columns into a tile, transposed; 0 outside."""
        text, width = self._text, self._spec.width
        each = 4 if width % 4 == 0 else 1
        parts = self._inner // each
        with text.block(f"for (i32 n = THREAD; n < {rows * parts}; n += {THREADS})", unroll="UNROLL"):
            text.line(
                f"const i64 there = {first} + n / {parts};",
                f"const i32 at = n % {parts} * {each};",
                f"const i32 to = at * {pitch} + n / {parts};",
            )
            x = f"{source} + there * {stride} + deep + at"
            inside = f"there < {end}{self._within('deep + at', width)}"
            if each == 1:
                text.line(f"{tile}[to] = {inside} ? *({x}) : 0.0f;")
                return
            text.line(f"const uint4 four = {inside} ? *(const GLOBAL uint4 *)({x}) : FOUR(0u, 0u, 0u, 0u);")
            text.line(*(f"{tile}[to + {i * pitch}] = FLOAT(four.{word});" for i, word in enumerate("xyzw")))

    def _load_shared(self, name: str, pointer: str, count: int) -> None:
        """Write loads of contiguous elements from shared memory, vectorized where there are at least four."""
        text = self._text
        if count < 4:
            text.line(f"const f32 {name}[{count}] = {{{', '.join(f'({pointer})[{i}]' for i in range(count))}}};")
            return
        parts = [text.define("uint4", f"((const LOCAL uint4 *)({pointer}))[{i}]", "four") for i in range(count // 4)]
        values = ", ".join(f"FLOAT({part}.{word})" for part in parts for word in "xyzw")
        text.line(f"const f32 {name}[{count}] = {{{values}}};")

    def _store_weights(self) -> None:
        """Write the stores of the weights to shared memory, transposed."""
        text = self._text
        with text.loops(j=COLUMNS):
            text.line(f"LOCAL uint4 *to = (LOCAL uint4 *)(shares + (lane * {COLUMNS} + j) * {self._row} + part);")
            for h in range(self._tile.each // 4):
                four = ", ".join(f"BITS(scores[{h * 4 + i}][j])" for i in range(4))
                text.line(f"to[{h}] = FOUR({four});")

    def _add_values(self) -> None:
        spec, text, whole = self._spec, self._text, self._each * self._tile.lanes
        vector = spec.columns % 4 == 0
        each = 4 if vector else 1
        parts = whole // each
        with text.block(f"for (i32 deep = 0; deep < {self._tile.keys}; deep += {self._inner})"):
            with text.block(f"for (i32 n = THREAD; n < {self._inner * parts}; n += {THREADS})", unroll="UNROLL"):
                text.line(f"const i64 there = start + deep + n / {parts};", f"const i32 at = n % {parts} * {each};")
                x = "value + there * value_row + at"
                inside = "there < keys" + (f" && at < {spec.columns}" if whole != spec.columns else "")
                if vector:
                    word = f"{inside} ? *(const GLOBAL uint4 *)({x}) : FOUR(0u, 0u, 0u, 0u)"
                    text.line(f"held_words[n] = {word};")
                else:
                    text.line(f"held[n] = {inside} ? *({x}) : 0.0f;")
            text.line("BARRIER();")
            with text.block(f"for (i32 p = 0; p < {self._inner}; p++)", unroll="UNROLL_4"):
                self._load_shared("a", f"shares + (deep + p) * {self._row} + part", self._tile.each)
                for g in range(self._each // self._vector):
                    at = f"held + p * {whole} + {g * self._tile.lanes * self._vector} + lane * {self._vector}"
                    self._load_shared(f"b{g}", at, self._vector)
                b = [f"b{c // self._vector}[{c % self._vector}]" for c in range(self._each)]
                text.each(
                    *(f"sums[i][{c}] = fma(a[i], {x}, sums[i][{c}]);" for c, x in enumerate(b)), i=self._tile.each
                )
            text.line("BARRIER();")

    def _write_result(self) -> None:
        spec, text, mod = self._spec, self._text, self._score_mod
        with mod.rows(), text.block("if (top + part + i < rows)"):
            place = mod.scalars_of(len(mod.passes) + 1)
            with text.block("if (lane == 0)"):
                for name in mod.scalars:
                    text.line(f"scalar_{name}[row] = {mod.value(place, name)};")
            item = "row"
            if spec.to_bsnh:
                item = "(row / queries / result_heads * queries + row % queries) * result_heads"
                item += " + row / queries % result_heads"
            text.line(f"const i64 item = {item};")
            values = {name: text.define("f32", mod.value(place, name), "scalar") for name in mod.scalars}
            bases: list[str] = []
            if spec.epilogue is not None:
                bases += [text.define("i64", base, "base") for _, base in spec.epilogue.bases(text, "item")]
            for c in range(self._each):
                with text.block(""):
                    self._write_column(c, values, bases)

    def _write_column(self, c: int, values: Mapping[str, str], bases: Sequence[str]) -> None:
        """Write the thread's c-th column of a row of the result."""
        spec, text, vector = self._spec, self._text, self._vector
        text.line(f"const i32 column = {c // vector * self._tile.lanes * vector + c % vector} + lane * {vector};")
        with text.block(f"if (column < {spec.columns})"):
            x = f"sums[i][{c}]"
            if spec.epilogue is not None:
                known = {p: x if name == "product" else values[name] for p, name in spec.registers.items()}
                x = spec.epilogue.apply(text, known, lambda n: bases[n])
            text.line(f"out[item * {spec.columns} + column] = {x};")
