"""Attention of 8-bit queries, keys and values: both products by sums of short integers, a row program between them.

    scores = (q k^T) * scale, as float32: the sum of the products is an int32
    out = (sum_j w_j v_j) * value_scale / max(normalizer, 1)

The weights of the row program are integers of at most 8 or 15 bits. Sums of `DEPTH` products of weights and values are
int32, and these are added up as float32 in their order: 512 x 2^15 x 2^7 is 2^31, so that weights below 2^15 fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.attention.kernel import DEPTH
from softq.codegen.cpu.gemm.dot_prepack import pack_dots_kernel
from softq.codegen.cpu.gemm.dot_product import BYTES, OFFSET, WORDS, Dot, dot_block_kernel
from softq.codegen.cpu.gemm.tiles import Matrix, Tile, call, ceil_divide, number, rows_of, tile_of_block
from softq.codegen.cpu.rows import row_kernel
from softq.codegen.cpu.rows.tir import broadcast, cast
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.errors import RefusalError
from softq.rowprog import Program
from softq.rowprog.program import Node
from softq.rowprog.ranges import prove
from softq.rowprog.types import DType, Kind

KEYS, VALUES, ATTENTION = "softq_pack_keys_i8", "softq_pack_values_i8", "softq_attention_i8"
"""Symbols."""


@dataclass(frozen=True)
class IntegerAttention:
    """The kernels of an attention of bytes.

    Attributes:
        functions: All of them.
        tile: Columns of its panels.
        weights: How weights and values are multiplied.
    """

    functions: tuple[tirx.PrimFunc, ...]
    tile: Tile
    weights: Dot

    def scratch_bytes(self, block: int, length: int, width: int) -> int:
        """Return the bytes of scratch for blocks of so many rows."""
        sizes = (block * length * 4, block * (width + 3), block * length * 2, block * 4)
        return sum(-(-size // 64) * 64 for size in sizes) + 64


def integer_attention(program: Program, machine: Cpu, max_length: int) -> IntegerAttention:
    """Return the kernels of an attention of bytes with a row program of float scores and integer weights.

        void softq_pack_keys_i8(const int8_t *keys, int8_t *panels, int32_t *starts, int64_t width, int64_t length,
                                int64_t heads, int64_t row, int64_t outer, int64_t inner, int64_t begin, int64_t end)
        void softq_pack_values_i8(const int8_t *values, V *panels, int32_t *starts, int64_t length, int64_t columns,
                                  int64_t heads, int64_t row, int64_t outer, int64_t inner, int64_t begin, int64_t end)
        void softq_attention_i8(const int8_t *queries, const int8_t *key_panels, const int32_t *key_starts,
                                const V *value_panels, const int32_t *value_starts, const float *scales, float *out,
                                [const bool *valid,] void *scratch, int64_t rows, int64_t length, int64_t width,
                                int64_t columns, int64_t block, int64_t heads, int64_t queries,
                                [int64_t outer, int64_t head, int64_t query, int64_t element,]
                                int64_t begin, int64_t end)

    `queries` is [matrices, rows, width], `keys` [matrices, length, width], `values` [matrices, length, columns]; V is
    the type of `weights.right`. Work items are numbered over matrices and blocks of `block` rows. `scales` are those of
    scores and of values, and 1. The mask has strides over (outer, heads, queries) as the row kernel's.

    Raises:
        RefusalError: the weights are no integers, or have more than 15 bits, or the program has run-time parameters.
    """
    if program.scores is not DType.F32 or not program.is_pair or program.params:
        raise RefusalError(f"{program.name} is no pair of float scores without run-time parameters")
    weights = program.outputs["weights"]
    greatest = 0 if weights.dtype.is_float else prove(program, max_length=max_length).filled[weights].high
    if weights.dtype.is_float or greatest >= 1 << 15:
        raise RefusalError(f"{program.name} has no integer weights of at most 15 bits")
    dot = BYTES if greatest < 1 << 8 else WORDS
    narrow = Node("cast", (weights,), DType.U8 if dot is BYTES else DType.U16, Kind.ROW)
    total = program.outputs["normalizer"]
    normalizer = total if total.dtype is DType.F32 else Node("cast", (total,), DType.F32, Kind.SCALAR)
    own = replace(program, outputs={**program.outputs, "row": narrow, "sum": normalizer})
    row = row_kernel(own, machine, symbol="softq_row_i8", max_length=max_length, outputs=("row", "sum"))
    if row.scratch_bytes:
        raise RefusalError(f"{program.name} needs memory beside its scores and weights")
    tile = tile_of_block(machine)
    packs = (
        pack_dots_kernel(machine, BYTES, KEYS, transposed=True, factor=-OFFSET),
        pack_dots_kernel(machine, dot, VALUES, transposed=False, factor=0),
    )
    dots = [dot_kernel(machine, kind) for kind in dict.fromkeys((BYTES, dot))]
    attention = _attention_kernel(tile, dot, row.symbol, program.masked)
    return IntegerAttention((*packs, *dots, row.function, attention), tile, dot)


_TYPES = {"queries": "int8", "key_panels": "int8", "key_starts": "int32", "value_panels": "", "value_starts": "int32",
          "scales": "float32", "out": "float32", "valid": "uint8", "scratch": "uint8"}  # fmt: skip
_SIZES = ("rows", "length", "width", "columns", "block", "heads", "queries_", "outer", "head", "query", "element")


def dot_kernel(machine: Cpu, dot: Dot) -> tirx.PrimFunc:
    """Return the kernel of a block of real numbers.

        void symbol(const L *a, const R *panel, const int32_t *starts, const float *scale, float *c, int64_t a_row,
                    int64_t c_row, int64_t groups, int64_t width, int64_t more, int64_t begin, int64_t end)

    As `sum_kernel`, but sums start with `starts` [columns], and are written as float32 times `scale`, added to what is
    there if `more` is not 0.
    """

    def store(kernel: KernelFunction, out: Matrix, value: Any, row: Any, column: Any, lanes: int) -> None:
        value = tirx.Mul(cast(value, "int32", "float32", lanes), broadcast(kernel.memory["scale"][number(0)], lanes))
        with T.If(kernel.sizes["more"] != number(0)):
            with T.Then():
                out.store(out.load(row, column, lanes) + value, row, column, lanes)
            with T.Else():
                out.store(value, row, column, lanes)

    pointers = {"starts": "int32", "scale": "float32", "c": "float32"}
    return dot_block_kernel(
        machine, dot, dot.symbol, pointers, ("more",), lambda kernel: lambda row, at: kernel.memory["starts"][at], store
    )


def _attention_kernel(tile: Tile, dot: Dot, row: str, masked: bool) -> tirx.PrimFunc:
    types = {name: dtype or dot.right for name, dtype in _TYPES.items() if masked or name != "valid"}
    with kernel_function(ATTENTION, types, _SIZES if masked else _SIZES[:7]) as made:
        _Builder(tile, dot, row, made.pointers, made.memory, made.sizes).emit(made.sizes["begin"], made.sizes["end"])
    return made.function


class _Builder:
    def __init__(self, tile: Tile, dot: Dot, row: str, pointers: Any, memory: Any, size: Any) -> None:
        self._dot, self._row, self._pointers, self._memory, self._size = dot, row, pointers, memory, size
        self._columns = number(tile.columns)
        self._key_groups = ceil_divide(size["width"], number(BYTES.count))
        # The thread's memory: scores, the queries as unsigned bytes, weights, and the rows' sums.
        bytes_ = 1 if dot is BYTES else 2
        block, length = size["block"], size["length"]
        self._unsigned = _aligned(block * length * number(4))
        self._weights = self._unsigned + _aligned(block * self._key_groups * number(BYTES.count))
        self._each = length * number(bytes_)
        # Behind the last row a group of numbers may be read that has no values.
        self._sums = self._weights + _aligned(block * self._each + number(4))

    def _at(self, name: str, position: Any) -> Any:
        return T.address_of(self._memory[name][position])

    def emit(self, begin: Any, end: Any) -> None:
        size = self._size
        with T.serial(begin, end) as item:
            matrix, _, first, rows = rows_of(item, size["rows"], size["block"])
            self._scores(matrix, first, rows)
            self._rows(first, rows)
            self._result(matrix, first, rows)

    def _scores(self, matrix: Any, first: Any, rows: Any) -> None:
        size, scratch, zero = self._size, self._memory["scratch"], number(0)
        each = self._key_groups * number(BYTES.count)
        with T.serial(zero, rows) as row, T.serial(zero, size["width"]) as k:
            byte = self._memory["queries"][(first + row) * size["width"] + k].astype("uint8")
            T.buffer_store(scratch, byte ^ tirx.IntImm("uint8", OFFSET), [self._unsigned + row * each + k])
        panels = ceil_divide(size["length"], self._columns)
        with T.serial(zero, panels) as panel:
            at, start = matrix * panels + panel, panel * self._columns
            width = tirx.min(self._columns, size["length"] - start)
            keys = self._at("key_panels", at * each * self._columns)
            starts, scale = self._at("key_starts", at * self._columns), self._at("scales", zero)
            numbers = (each, size["length"], self._key_groups, width, zero, zero, rows)
            call(BYTES.symbol, self._at("scratch", self._unsigned), keys, starts, scale,
                  self._at("scratch", start * number(4)), *numbers)  # fmt: skip

    def _rows(self, first: Any, rows: Any) -> None:
        """Call the row kernel, which numbers the rows among all: memory seems to start before them."""
        size = self._size
        scores = self._at("scratch", -(first * size["length"] * number(4)))
        weights = self._at("scratch", self._weights - first * self._each)
        sums = self._at("scratch", self._sums - first * number(4))
        mask = [self._pointers["valid"]] if "valid" in self._pointers else []
        strides = [size[name] for name in _SIZES[7:] if name in size]
        numbers = (size["length"], size["heads"], size["queries_"], *strides, first, first + rows)
        call(self._row, scores, *mask, weights, sums, *numbers)

    def _result(self, matrix: Any, first: Any, rows: Any) -> None:
        size, zero, count = self._size, number(0), number(self._dot.count)
        groups = ceil_divide(size["length"], count)
        panels = ceil_divide(size["columns"], self._columns)
        with T.serial(zero, tirx.max(ceil_divide(size["length"], number(DEPTH)), number(1))) as part:
            start = part * number(DEPTH)
            steps = ceil_divide(tirx.min(number(DEPTH), size["length"] - start), count)
            with T.serial(zero, panels) as panel:
                at = matrix * panels + panel
                values = self._at("value_panels", (at * groups * count + start) * self._columns)
                starts, one = self._at("value_starts", at * self._columns), self._at("scales", number(2))
                bytes_ = number(1 if self._dot is BYTES else 2)
                left = self._at("scratch", self._weights + start * bytes_)
                out = self._at("out", first * size["columns"] + panel * self._columns)
                width = tirx.min(self._columns, size["columns"] - panel * self._columns)
                numbers = (size["length"], size["columns"], steps, width, part, zero, rows)
                call(self._dot.symbol, left, values, starts, one, out, *numbers)
        sums = T.decl_buffer((size["block"],), "float32", data=self._at("scratch", self._sums), align=4)
        with T.serial(zero, rows) as row:
            total = T.alloc_buffer((1,), "float32", scope="local")
            one = tirx.FloatImm("float32", 1.0)
            T.buffer_store(total, tirx.Select(sums[row] < one, one, sums[row]), [zero])
            with T.serial(zero, size["columns"]) as column:
                here = (first + row) * size["columns"] + column
                scaled = self._memory["out"][here] * self._memory["scales"][number(1)]
                T.buffer_store(self._memory["out"], tirx.Div(scaled, total[zero]), [here])


def _aligned(size: Any) -> Any:
    return ceil_divide(size, number(64)) * number(64)
