"""Products of short integers: how several are added up in 32 bits, and the kernel of a block of rows and a panel.

x86's VNNI multiplies four unsigned bytes by four signed ones, or two signed 16-bit numbers by two, and adds them to an
int32; Arm's dot products take four signed bytes by four, with the matrix extension unsigned by signed ones too.
Elsewhere the same sums are made by 32-bit arithmetic. They are integers, so that all give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.scaled_sums import ScaledSums
from softq.codegen.cpu.gemm.tiles import Matrix, Sums, block_tiles, number, tile_of_block, vector
from softq.codegen.cpu.rows.tir import bits_of, broadcast, cast, intrinsic, reinterpret, shuffle
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function

OFFSET = 128
"""How far signed and unsigned bytes are apart: added to signed ones, or taken from unsigned ones, the other kind."""


@dataclass(frozen=True)
class Dot:
    """One kind of product.

    Attributes:
        symbol: Name of the kernel.
        count: How many numbers are in a group: in 32 bits, or in a vector of bytes.
        left: Type of the rows' numbers.
        right: Type of the columns' numbers.
        runs: Whether the numbers of a column lie one behind another in a panel; else groups of them do, of one column
            after the other.
    """

    symbol: str
    count: int
    left: str
    right: str
    runs: bool = False

    @property
    def group_bytes(self) -> int:
        """Bytes of a group of the left operand."""
        return self.count * bits_of(self.left) // 8

    def left_offset(self, given: str) -> int:
        """Return what is added to bytes of a type to have those that the left operand holds, in any type."""
        if self.left == "int8":
            return -OFFSET if given == "uint8" else 0
        return OFFSET if given == "int8" else 0

    def right_offset(self, given: str) -> int:
        """Return what is added to bytes of a type to have those that the right operand holds."""
        return -OFFSET if given == "uint8" else 0


BYTES = Dot("softq_dot_bytes", 4, "uint8", "int8")
SIGNED = Dot("softq_dot_signed", 4, "int8", "int8")
WORDS = Dot("softq_dot_words", 2, "int16", "int16")
RUNS = Dot("softq_dot_runs", 4, "int8", "int8", runs=True)
VECTORS = Dot("softq_dot_vectors", 16, "int8", "int8", runs=True)

_INSTRUCTIONS = (
    ("avx512vnni", 16, BYTES, "llvm.x86.avx512.vpdpbusd.512"),
    ("avx512vnni", 16, WORDS, "llvm.x86.avx512.vpdpwssd.512"),
    ("i8mm", 4, BYTES, "llvm.aarch64.neon.usdot.v4i32.v16i8"),
    ("dotprod", 4, SIGNED, "llvm.aarch64.neon.sdot.v4i32.v16i8"),
)
"""What a processor may have, the 32-bit lanes of its vectors, and LLVM's name of the instruction."""


def dot_of(machine: Cpu) -> Dot:
    """Return the faster kind of product of bytes: without an instruction for them, their sums of words are.

    Without a system they are `dot_runs`: bytes take half the flash, and words are made of them where they are
    multiplied; vectors of 16 bytes are multiplied and added up at once (MVE).
    """
    if machine.in_flash:
        return RUNS if machine.in_c else VECTORS
    return next((dot for dot in (BYTES, SIGNED) if _instruction(machine, dot)), WORDS)


def has_words(machine: Cpu) -> bool:
    """Say whether products of 16-bit integers have an instruction: without one those of floats are as fast."""
    return _instruction(machine, WORDS) is not None or _has_pairs(machine)


def _has_pairs(machine: Cpu) -> bool:
    return tile_of_block(machine).lanes == 8 and "avx2" in machine.requires


def _instruction(machine: Cpu, dot: Dot) -> str | None:
    lanes = tile_of_block(machine).lanes
    found = (name for has, n, d, name in _INSTRUCTIONS if has in machine.requires and (n, d) == (lanes, dot))
    return next(found, None)


def product_of(machine: Cpu, dot: Dot, memory: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    """Return what adds the products of a group of a row and of a vector's columns to a sum."""
    a, panel, lanes, count = memory["a"], memory["panel"], tile_of_block(machine).lanes, dot.count
    pairs = dot is WORDS and _has_pairs(machine)
    instruction = _instruction(machine, dot)

    def product(held: Any, left: Any, right: Any) -> Any:
        if pairs or instruction is not None:
            group = reinterpret(a[vector(left, count)], "int32", 1)
            repeated = reinterpret(broadcast(group, lanes), dot.left, lanes * count)
            others = panel[vector(right, lanes * count)]
            if pairs:
                return held + intrinsic("llvm.x86.avx2.pmadd.wd", "int32", lanes, repeated, others)
            return intrinsic(instruction, "int32", lanes, held, repeated, others)
        for i in range(count):
            one = broadcast(cast(a[left + number(i)], dot.left, "int32", 1), lanes)
            others = panel[right + number(i)]
            if lanes > 1:
                # Taken out of one vector: a load of every second number would be one for each lane.
                others = shuffle([panel[vector(right, lanes * count)]], range(i, lanes * count, count))
            held = held + one * cast(others, dot.right, "int32", lanes)
        return held

    return product


def sum_kernel(machine: Cpu, dot: Dot, symbol: str, epilogue: ScaledSums | None = None) -> tirx.PrimFunc:
    """Return the kernel of a block of integers.

        void symbol(const L *a, const R *panel, const int32_t *columns, const int32_t *rows, int32_t *c,
                    [const float *operand...,] int64_t a_row, int64_t c_row, int64_t groups, int64_t width,
                    int64_t factor, int64_t first, int64_t begin, int64_t end)

    It computes the rows of c from `begin` up to `end`, `width` columns of each: a [rows, groups, count] times a panel
    [groups, columns, count], added to `first` + rows[row] + `factor` * columns[column]. Rows are `a_row` and `c_row`
    elements apart. With an epilogue c is float32.
    """
    tile, lanes = tile_of_block(machine), tile_of_block(machine).lanes

    def prepare(kernel: KernelFunction) -> Callable[[Any, Any], Any]:
        memory, starts = kernel.memory, T.alloc_buffer((tile.columns,), "int32", scope="local")
        factor, first = (kernel.sizes[name].astype("int32") for name in ("factor", "first"))
        for v in range(tile.vectors):
            at = vector(number(v * lanes), lanes)
            value = memory["columns"][at] * broadcast(factor, lanes) + broadcast(first, lanes)
            T.buffer_store(starts, value, [at])
        return lambda row, at: starts[at] + broadcast(memory["rows"][row], lanes)

    def store(kernel: KernelFunction, out: Matrix, value: Any, row: Any, column: Any, lanes: int) -> None:
        assert epilogue is not None
        operands = [kernel.memory[name][number(0)] for name in read]
        out.store(epilogue.apply(value, operands, lanes), row, column, lanes)

    read = [] if epilogue is None else [f"operand{i}" for i in range(epilogue.operands)]
    pointers = {"columns": "int32", "rows": "int32", "c": "int32" if epilogue is None else "float32"}
    pointers |= dict.fromkeys(read, "float32")
    given = None if epilogue is None else store
    return dot_block_kernel(machine, dot, symbol, pointers, ("factor", "first"), prepare, given)


PART = 256
"""Products of an int16 and a byte less its zero point that are added up in 32 bits: 2^15 x 255 x 256 is below 2^31."""


def part_kernel(machine: Cpu, dot: Dot, symbol: str) -> tirx.PrimFunc:
    """Return the kernel of a block of float32 that is made of sums of integers, part by part.

        void symbol(const L *a, const R *panel, float *c, int64_t a_row, int64_t c_row, int64_t groups, int64_t width,
                    int64_t more, int64_t begin, int64_t end)

    As `sum_kernel`, but the sums are those of the products alone, added to what is there if `more` is not 0.
    """
    lanes = tile_of_block(machine).lanes

    def store(kernel: KernelFunction, out: Matrix, value: Any, row: Any, column: Any, many: int) -> None:
        value = cast(value, "int32", "float32", many)
        with T.If(kernel.sizes["more"] != number(0)):
            with T.Then():
                out.store(out.load(row, column, many) + value, row, column, many)
            with T.Else():
                out.store(value, row, column, many)

    nothing = broadcast(tirx.IntImm("int32", 0), lanes)
    return dot_block_kernel(machine, dot, symbol, {"c": "float32"}, ("more",), lambda _: lambda *_: nothing, store)


def dot_block_kernel(
    machine: Cpu,
    dot: Dot,
    symbol: str,
    pointers: Mapping[str, str],
    sizes: Sequence[str],
    prepare: Callable[[KernelFunction], Callable[[Any, Any], Any]],
    store: Callable[..., None] | None = None,
) -> tirx.PrimFunc:
    """Return the kernel of a block: `symbol(a, panel, pointers..., a_row, c_row, groups, width, sizes..., begin, end)`.

    Args:
        machine: The processor.
        dot: How integers are multiplied.
        symbol: The kernel's name.
        pointers: Types of further pointers; `c` is the result.
        sizes: Further numbers.
        prepare: Is called once with the kernel; returns what products are added to, for a row and a vector's columns.
        store: Is called with the kernel, the result, sums, their row, first column and number; writes them otherwise
            than as they are.
    """
    tile = tile_of_block(machine)
    lanes, zero = tile.lanes, number(0)
    types = {"a": dot.left, "panel": dot.right, **pointers}
    with kernel_function(symbol, types, ("a_row", "c_row", "groups", "width", *sizes)) as kernel:
        a_row, c_row, groups, width, *_, begin, end = kernel.sizes.values()
        product = product_of(machine, dot, kernel.memory)
        done = T.alloc_buffer((1,), "int64", scope="local")
        sums = Sums(tile, "int32")

        start = prepare(kernel)
        for rows, vectors, first in block_tiles(tile, width, begin, end, done):
            places = [(row, v) for row in range(rows) for v in range(vectors)]
            for row, v in places:
                sums.set(row, v, start(first + number(row), vector(number(v * lanes), lanes)))
            with T.serial(zero, groups) as group:
                for row, v in places:
                    left = (first + number(row)) * a_row + group * number(dot.count)
                    right = (group * number(tile.columns) + number(v * lanes)) * number(dot.count)
                    sums.set(row, v, product(sums.get(row, v), left, right))
            out = Matrix(kernel.memory["c"], first * c_row, c_row)
            sums.store_row_by_row(rows, out, width, vectors, partial(store, kernel) if store else Matrix.store)
    return kernel.function
