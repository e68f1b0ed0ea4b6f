"""Products of a block of rows of short integers and a panel of columns, as real numbers or as integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.artifact.machine import Cpu
from softq.codegen.cpu.gemm.block import row_counts, tile_of_block
from softq.codegen.cpu.gemm.dot_product import BYTES_OF, Dot, product_of
from softq.codegen.cpu.gemm.tiles import Matrix, Tile, broadcast, number, vector
from softq.codegen.cpu.rows.tir import cast


def dot_kernel(machine: Cpu, dot: Dot) -> tirx.PrimFunc:
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


def sum_kernel(machine: Cpu, dot: Dot) -> tirx.PrimFunc:
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
    machine: Cpu, dot: Dot, symbol: str, pointers: Mapping[str, str], sizes: Sequence[str], steps: _Steps
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
            name: T.decl_buffer((end * a_row,), dtype, data=given[name], align=BYTES_OF[dtype])
            for name, dtype in types.items()
        }
        block, product = _Block(tile, memory, size), product_of(machine, dot, memory)
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
