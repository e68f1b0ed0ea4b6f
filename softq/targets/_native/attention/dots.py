# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""Products of blocks of short integers: several products are added up in each 32 bits of an instruction.

x86's VNNI multiplies four unsigned bytes by four signed ones, or two signed 16-bit numbers by two, and adds them to an
int32; elsewhere the same sums are made by 32-bit arithmetic. They are integers, so that both give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.targets._native.attention.blocks import row_counts, tile_of_block
from softq.targets._native.machine import Machine
from softq.targets._native.rows.tir import cast, intrinsic, reinterpret
from softq.targets._native.tiles import Matrix, Tile, broadcast, number, vector


@dataclass(frozen=True)
class Dot:
    """One kind of product.

    Attributes:
        symbol: Name of the kernel.
        count: How many numbers are in 32 bits.
        left: Type of the rows' numbers.
        right: Type of the columns' numbers.
        instruction: LLVM's name of x86's instruction for 64 bytes.
    """

    symbol: str
    count: int
    left: str
    right: str
    instruction: str


BYTES = Dot("softq_dot_bytes", 4, "uint8", "int8", "llvm.x86.avx512.vpdpbusd.512")
WORDS = Dot("softq_dot_words", 2, "int16", "int16", "llvm.x86.avx512.vpdpwssd.512")


def dot_of(machine: Machine) -> Dot:
    """Return the faster kind of product of bytes: without an instruction for them, their sums of words are."""
    return BYTES if _has_instruction(machine) else WORDS


def _has_instruction(machine: Machine) -> bool:
    return "avx512vnni" in machine.requires and tile_of_block(machine).lanes == 16


def dot_kernel(machine: Machine, dot: Dot) -> tirx.PrimFunc:
    """Return the kernel of a block of real numbers.

        void symbol(const L *a, const R *panel, const int32_t *starts, const float *scale, float *c, int64_t a_row,
                    int64_t c_row, int64_t groups, int64_t width, int64_t more, int64_t begin, int64_t end)

    It computes the rows of c from `begin` up to `end`, `width` columns of each: a [rows, groups, count] times a panel
    [groups, columns, count], added up from `starts` [columns], as float32 times `scale`, added to what is there if
    `more` is not 0. Rows are `a_row` and `c_row` elements apart.
    """

    def finish(block: _Block, held: Any, lanes: int) -> Any:
        scale = broadcast(block.memory["scale"][number(0)], lanes)
        return cast(held, "int32", "float32", lanes) * scale

    return _kernel(
        machine,
        dot,
        dot.symbol,
        {"starts": "int32", "scale": "float32", "c": "float32"},
        ("more",),
        _Steps(start=lambda block, row, at: block.memory["starts"][at], finish=finish),
    )


def sum_kernel(machine: Machine, dot: Dot) -> tirx.PrimFunc:
    """Return the kernel of a block of integers.

        void symbol(const L *a, const R *panel, const int32_t *columns, const int32_t *rows, int32_t *c, int64_t a_row,
                    int64_t c_row, int64_t groups, int64_t width, int64_t factor, int64_t first, int64_t begin,
                    int64_t end)

    As `dot_kernel`, but c is what the sums are: `first` + rows[row] + `factor` * columns[column] + the products.
    """

    def prepare(block: _Block) -> Any:
        starts = T.alloc_buffer((block.tile.columns,), "int32", scope="local")
        factor, first = (block.size[name].astype("int32") for name in ("factor", "first"))
        for v in range(block.tile.vectors):
            at, lanes = block.column(v), block.tile.lanes
            value = block.memory["columns"][at] * broadcast(factor, lanes) + broadcast(first, lanes)
            T.buffer_store(starts, value, [at])
        return starts

    def start(block: _Block, row: Any, at: Any) -> Any:
        return block.prepared[at] + broadcast(block.memory["rows"][row], block.tile.lanes)

    return _kernel(
        machine,
        dot,
        f"{dot.symbol}_sums",
        {"columns": "int32", "rows": "int32", "c": "int32"},
        ("factor", "first"),
        _Steps(start=start, finish=lambda block, held, lanes: held, prepare=prepare),
    )


@dataclass
class _Block:
    """The parameters of a kernel while it is written.

    Attributes:
        tile: What is held in registers.
        memory: What pointers point to, by name.
        size: Numbers by name.
        prepared: What `_Steps.prepare` gave.
    """

    tile: Tile
    memory: Mapping[str, Any]
    size: Mapping[str, Any]
    prepared: Any = None

    def column(self, v: int) -> Any:
        """Return the positions of a vector's columns."""
        return vector(number(v * self.tile.lanes), self.tile.lanes)


@dataclass(frozen=True)
class _Steps:
    """What kernels do beside the products.

    Attributes:
        start: Gives what the products are added to, for a row and a vector's columns.
        finish: Gives what is written for the sums.
        prepare: Is called once, before all rows.
    """

    start: Callable[[_Block, Any, Any], Any]
    finish: Callable[[_Block, Any, int], Any]
    prepare: Callable[[_Block], Any] = lambda block: None


def _kernel(
    machine: Machine, dot: Dot, symbol: str, pointers: Mapping[str, str], sizes: Sequence[str], steps: _Steps
) -> tirx.PrimFunc:
    tile = tile_of_block(machine)
    lanes, zero = tile.lanes, number(0)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        types = {"a": dot.left, "panel": dot.right, **pointers}
        given = {name: T.arg(name, T.handle(dtype)) for name, dtype in types.items()}
        names = ("a_row", "c_row", "groups", "width", *sizes, "begin", "end")
        size = {name: T.arg(name, T.int64()) for name in names}
        a_row, c_row, groups, width, begin, end = (size[n] for n in ("a_row", "c_row", "groups", "width", *names[-2:]))
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        memory = {
            name: T.decl_buffer((end * a_row,), dtype, data=given[name], align=_BYTES_OF[dtype])
            for name, dtype in types.items()
        }
        block, product = _Block(tile, memory, size), _product(machine, dot, memory)
        c, out_type = memory["c"], types["c"]
        done = T.alloc_buffer((1,), "int64", scope="local")
        sums = T.alloc_buffer((tile.rows * tile.columns,), "int32", scope="local")

        def at(row: int, v: int) -> Any:
            return vector(number((row * tile.vectors + v) * lanes), lanes)

        def strips(rows: int, vectors: int) -> None:
            places = [(row, v) for row in range(rows) for v in range(vectors)]
            with T.serial(zero, tirx.truncdiv(end - done[zero], number(rows))):
                first = done[zero]
                for row, v in places:
                    T.buffer_store(sums, steps.start(block, first + number(row), block.column(v)), [at(row, v)])
                with T.serial(zero, groups) as group:
                    for row, v in places:
                        left = (first + number(row)) * a_row + group * number(dot.count)
                        right = (group * number(tile.columns) + number(v * lanes)) * number(dot.count)
                        T.buffer_store(sums, product(sums[at(row, v)], left, right), [at(row, v)])
                out = Matrix(c, first * c_row, c_row)
                edge = Matrix(T.alloc_buffer((rows * lanes,), out_type, scope="local"), zero, number(lanes))
                for row, v in places:
                    value = steps.finish(block, sums[at(row, v)], lanes)
                    if v < vectors - 1:
                        write(out, value, number(row), number(v * lanes), lanes)
                    else:
                        edge.store(value, number(row), zero, lanes)
                skipped = number((vectors - 1) * lanes)
                with T.serial(zero, number(rows)) as row, T.If(number(vectors * lanes) <= width):
                    with T.Then():
                        write(out, edge.load(row, zero, lanes), row, skipped, lanes)
                    with T.Else(), T.serial(zero, width - skipped) as column:
                        write(out, edge.load(row, column), row, skipped + column, 1)
                T.buffer_store(done, first + number(rows), [zero])

        def write(out: Matrix, value: Any, row: Any, column: Any, count: int) -> None:
            if "more" not in size:
                out.store(value, row, column, count)
                return
            with T.If(size["more"] != zero):
                with T.Then():
                    out.store(out.load(row, column, count) + value, row, column, count)
                with T.Else():
                    out.store(value, row, column, count)

        block.prepared = steps.prepare(block)
        for v in range(1, tile.vectors + 1):
            least, most = number((v - 1) * lanes), number(v * lanes)
            with T.If(tirx.And(least < width, width <= most)), T.Then():
                T.buffer_store(done, begin, [zero])
                for rows in row_counts(tile.rows):
                    strips(rows, v)
    return builder.get()


_BYTES_OF = {"int8": 1, "uint8": 1, "int16": 2, "int32": 4, "float32": 4}


def _product(machine: Machine, dot: Dot, memory: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    """Return what adds the products of a group of a row and of a vector's columns to a sum."""
    a, panel, lanes, count = memory["a"], memory["panel"], tile_of_block(machine).lanes, dot.count
    pairs = dot is WORDS and lanes == 8 and "avx2" in machine.requires

    def product(held: Any, left: Any, right: Any) -> Any:
        if pairs or _has_instruction(machine):
            group = reinterpret(a[vector(left, count)], "int32", 1)
            spread = reinterpret(broadcast(group, lanes), dot.left, lanes * count)
            others = panel[vector(right, lanes * count)]
            if pairs:
                return held + intrinsic("llvm.x86.avx2.pmadd.wd", "int32", lanes, spread, others)
            return intrinsic(dot.instruction, "int32", lanes, held, spread, others)
        for i in range(count):
            one = broadcast(cast(a[left + number(i)], dot.left, "int32", 1), lanes)
            first = right + number(i)
            others = panel[first if lanes == 1 else tirx.Ramp(first, number(count), lanes)]
            held = held + one * cast(others, dot.right, "int32", lanes)
        return held

    return product


def pack_dots_kernel(
    machine: Machine, dot: Dot, symbol: str, *, transposed: bool, given: str = "int8", factor: int = 1
) -> tirx.PrimFunc:
    """Return the kernel that packs matrices of bytes for `dot_kernel` and `sum_kernel`.

        void symbol(const G *b, R *panels, int32_t *sums, int64_t k, int64_t n, int64_t heads, int64_t row,
                    int64_t outer, int64_t inner, int64_t begin, int64_t end)

    A work item is one panel of one matrix. A matrix is [k, n] (`transposed`: [n, k]), its rows `row` elements apart;
    number i starts at i // heads times `outer` and i % heads times `inner`. Panels are [matrices, panels, groups,
    columns, count] with zeros behind the end, sums [matrices, panels, columns]: `factor` times the sum of each column.

    Args:
        machine: The processor.
        dot: What the panels are for.
        symbol: The kernel's name.
        transposed: Whether a column of the panels is a row of the matrix.
        given: Type of the matrix; `OFFSET` is taken from unsigned bytes.
        factor: See above.
    """
    tile, zero = tile_of_block(machine), number(0)
    columns, count = number(tile.columns), number(dot.count)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        types = {"b": given, "panels": dot.right, "sums": "int32"}
        pointers = {name: T.arg(name, T.handle(dtype)) for name, dtype in types.items()}
        names = ("k", "n", "heads", "row", "outer", "inner", "begin", "end")
        k, n, heads, row, outer, inner, begin, end = (T.arg(name, T.int64()) for name in names)
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        b, out, sums = (
            T.decl_buffer((end * n * k,), dtype, data=pointers[name], align=_BYTES_OF[dtype])
            for name, dtype in types.items()
        )
        base = T.alloc_buffer((1,), "int64", scope="local")
        panels = tirx.truncdiv(n + columns - number(1), columns)
        groups, whole = tirx.truncdiv(k + count - number(1), count), tirx.truncdiv(k, count)
        lanes = tile.lanes

        def elements(position: Any, step: Any, many: int) -> Any:
            """Return some columns of a row, one after another in memory unless `transposed`."""
            at = base[zero] + (position * row + step if transposed else step * row + position)
            value = b[vector(at, many)]
            if given == "uint8":
                flipped = value ^ broadcast(tirx.IntImm("uint8", OFFSET), many)
                value = reinterpret(flipped, "int8", many)
            return cast(value, "int8", dot.right, many)

        def store(item: Any, group: Any, column: Any, inside: Any, value: Any, many: int = 1) -> None:
            to = ((item * groups + group) * columns + column) * count + inside
            T.buffer_store(out, value, [vector(to, many)])

        def copied(item: Any, first: Any, column: Any, group: Any) -> None:
            for i in range(dot.count):
                store(item, group, column, number(i), elements(first + column, group * count + number(i), 1))

        def interleaved(item: Any, first: Any, group: Any, v: int) -> None:
            start = number(v * lanes)
            rows = [elements(first + start, group * count + number(i), lanes) for i in range(dot.count)]
            order = [tirx.const(i * lanes + column, "int32") for column in range(lanes) for i in range(dot.count)]
            store(item, group, start, zero, tirx.Shuffle(rows, order), lanes * dot.count)

        with T.serial(begin, end) as item:
            matrix, first = tirx.truncdiv(item, panels), tirx.truncmod(item, panels) * columns
            T.buffer_store(base, tirx.truncdiv(matrix, heads) * outer + tirx.truncmod(matrix, heads) * inner, [zero])
            width = tirx.min(columns, n - first)
            with T.If(tirx.Or(width < columns, whole < groups)), T.Then(), T.serial(zero, groups) as group:
                for v in range(tile.vectors):
                    nothing = broadcast(tirx.IntImm(dot.right, 0), lanes * dot.count)
                    store(item, group, number(v * lanes), zero, nothing, lanes * dot.count)
            # In the order in which they are read from memory.
            if transposed:
                with T.serial(zero, width) as column, T.serial(zero, whole) as group:
                    copied(item, first, column, group)
            else:
                with T.serial(zero, whole) as group:
                    for v in range(tile.vectors if lanes > 1 else 0):
                        with T.If(number((v + 1) * lanes) <= width), T.Then():
                            interleaved(item, first, group, v)
                    done = tirx.truncdiv(width, number(lanes)) * number(lanes) if lanes > 1 else zero
                    with T.serial(done, width) as column:
                        copied(item, first, column, group)
            with T.serial(whole * count, k) as step, T.serial(zero, width) as column:
                store(item, whole, column, step - whole * count, elements(first + column, step, 1))
            for v in range(tile.vectors):
                _add_up(machine, dot, out, sums, (item * columns + number(v * lanes), item * groups, groups, v, factor))
    return builder.get()


def _add_up(machine: Machine, dot: Dot, panel: Any, sums: Any, where: tuple[Any, Any, Any, int, int]) -> None:
    """Write `factor` times the sums of a vector's columns: each group's product with ones."""
    to, first, groups, v, factor = where
    tile, zero = tile_of_block(machine), number(0)
    lanes = tile.lanes
    total = T.alloc_buffer((lanes,), "int32", scope="local")
    ones = T.alloc_buffer((dot.count,), dot.left, scope="local")
    for i in range(dot.count):
        T.buffer_store(ones, tirx.IntImm(dot.left, 1), [number(i)])
    T.buffer_store(total, broadcast(tirx.IntImm("int32", 0), lanes), [vector(zero, lanes)])
    product = _product(machine, dot, {"a": ones, "panel": panel})
    if factor:
        with T.serial(zero, groups) as group:
            at = ((first + group) * number(tile.columns) + number(v * lanes)) * number(dot.count)
            T.buffer_store(total, product(total[vector(zero, lanes)], zero, at), [vector(zero, lanes)])
    value = total[vector(zero, lanes)] * broadcast(tirx.IntImm("int32", factor), lanes)
    T.buffer_store(sums, value, [vector(to, lanes)])


def rows_kernel(dot: Dot, given: str) -> tirx.PrimFunc:
    """Return the kernel that gives rows of bytes the type of a product's left operand.

        void symbol(const G *source, L *out, int32_t *sums, int64_t source_row, int64_t out_row, int64_t width,
                    int64_t factor, int64_t begin, int64_t end)

    `OFFSET` is added to signed bytes. `sums` has `factor` times the sum of each row. Rows are so many elements apart.
    """
    symbol, zero = rows_symbol(dot, given), number(0)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        types = {"source": given, "out": dot.left, "sums": "int32"}
        pointers = {name: T.arg(name, T.handle(dtype)) for name, dtype in types.items()}
        names = ("source_row", "out_row", "width", "factor", "begin", "end")
        source_row, out_row, width, factor, begin, end = (T.arg(name, T.int64()) for name in names)
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        source, out, sums = (
            T.decl_buffer((end * source_row,), dtype, data=pointers[name], align=_BYTES_OF[dtype])
            for name, dtype in types.items()
        )
        total = T.alloc_buffer((1,), "int32", scope="local")

        def byte(row: Any, k: Any) -> Any:
            value = source[row * source_row + k]
            return value.astype("uint8") ^ tirx.IntImm("uint8", OFFSET) if given == "int8" else value

        with T.serial(begin, end) as row:
            T.buffer_store(total, tirx.IntImm("int32", 0), [zero])
            with T.serial(zero, width) as k:
                T.buffer_store(out, cast(byte(row, k), "uint8", dot.left, 1), [row * out_row + k])
            with T.If(factor != zero), T.Then(), T.serial(zero, width) as k:
                T.buffer_store(total, total[zero] + cast(byte(row, k), "uint8", "int32", 1), [zero])
            T.buffer_store(sums, total[zero] * factor.astype("int32"), [row])
    return builder.get()


def rows_symbol(dot: Dot, given: str) -> str:
    """Return the name of `rows_kernel`."""
    return f"{dot.symbol}_rows_{given}"


OFFSET = 128
"""What is added to signed bytes of the left operand and taken from unsigned ones of the right one."""
