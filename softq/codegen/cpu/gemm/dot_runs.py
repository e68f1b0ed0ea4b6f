"""Products of 8-bit integers in C, where the numbers of a column lie one behind another: `Dot.runs`.

Panels are [panels, columns, groups * count], so columns are rows of one matrix, each with zeros behind its end. Two
rows of the left operand and two columns are multiplied at once by a function that stands before kernels in C: by the
DSP instructions of a processor that has them, four bytes a word, else byte by byte. With vectors there is no such
function (`dot_vectors`). All give the same integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.gemm.dot_prepack import of_right, rows_symbol
from softq.codegen.cpu.gemm.dot_product import VECTORS, Dot
from softq.codegen.cpu.gemm.dot_vectors import multiply_by_vectors
from softq.codegen.cpu.gemm.runs_matrix import RunsMatrix
from softq.codegen.cpu.gemm.scaled_sums import ScaledSums
from softq.codegen.cpu.gemm.tiles import Tile, call, ceil_divide, matrix_start, number
from softq.codegen.cpu.rows.tir import cast
from softq.compiler.steps.product import Epilogue
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function

ROWS = 8
"""Rows of the left operand in one work item, where they are brought into another form first."""

DOTS = "sq_dots"
"""The functions of one row, and of two, with two columns; their sums are added to four numbers."""

_PAIR = 2


def multiply_runs(
    left: RunsMatrix,
    right: RunsMatrix,
    sizes: tuple[Any, Any, Any],
    start: Callable[[Any, Any], Any],
    store: Callable[[Any, Any, Any], None],
    short: bool,
    count: int,
) -> None:
    """Emit the product of some rows and some columns.

    Args:
        left: The rows.
        right: The columns; there is an even number of them in memory.
        sizes: Groups of numbers of a row, the number of rows, and that of columns.
        start: Gives what products are added to, for a row and a column.
        store: Writes the sum of a row and a column.
        short: Whether that is little code, which may stand there for each of the sums.
        count: Numbers of a group.
    """
    if count == VECTORS.count:
        multiply_by_vectors(left, right, sizes, start, store)
        return
    zero, pair = number(0), number(_PAIR)
    groups, rows, columns = sizes
    sums = T.alloc_buffer((_PAIR * _PAIR,), "int32", scope="local")
    with T.serial(zero, ceil_divide(rows, _PAIR)) as of_rows, T.serial(zero, ceil_divide(columns, _PAIR)) as of_columns:
        row, column = of_rows * pair, of_columns * pair
        high, wide = (tirx.min(pair, x) for x in (rows - row, columns - column))
        for i in range(_PAIR):
            for j in range(_PAIR):
                # Of a row that is not there the sum of the last one is begun, and not used.
                there = row + (tirx.min(number(i), high - number(1)) if i else zero)
                T.buffer_store(sums, start(there, column + number(j)), [number(i * _PAIR + j)])
        with T.If(number(1) < high):
            with T.Then():
                _call_dots(_PAIR, (left, row), (right, column), groups, sums)
            with T.Else():
                _call_dots(1, (left, row), (right, column), groups, sums)
        if short:
            for i in range(_PAIR):
                for j in range(_PAIR):
                    with T.If(tirx.And(number(i) < high, number(j) < wide)), T.Then():
                        store(row + number(i), column + number(j), sums[number(i * _PAIR + j)])
        else:
            with T.serial(zero, high) as i, T.serial(zero, wide) as j:
                store(row + i, column + j, sums[i * pair + j])


def _call_dots(rows: int, left: tuple[RunsMatrix, Any], right: tuple[RunsMatrix, Any], groups: Any, sums: Any) -> None:
    """Emit the sums of one row or two with two columns, by a function in C."""
    (a, row), (b, column) = left, right
    call(f"{DOTS}_{rows}", a.address(row), a.row, b.address(column), b.row, groups, T.address_of(sums[number(0)]))


def runs_sum_kernel(dot: Dot, symbol: str, epilogue: ScaledSums | None = None) -> tirx.PrimFunc:
    """Return the kernel of a block of integers; it has the parameters of `dot_product.sum_kernel`."""
    read = [] if epilogue is None else [f"operand{i}" for i in range(epilogue.operands)]
    types = {"a": dot.left, "panel": dot.right, "columns": "int32", "rows": "int32"}
    types |= {"c": "int32" if epilogue is None else "float32"} | dict.fromkeys(read, "float32")
    sizes = ("a_row", "c_row", "groups", "width", "factor", "first")
    with kernel_function(symbol, types, sizes) as kernel:
        memory = kernel.memory
        a_row, c_row, groups, width, factor, first, begin, end = kernel.sizes.values()

        def start(row: Any, column: Any) -> Any:
            of_row = first.astype("int32") + memory["rows"][begin + row]
            return of_row + factor.astype("int32") * memory["columns"][column]

        def store(row: Any, column: Any, value: Any) -> None:
            if epilogue is not None:
                value = epilogue.apply(value, [memory[name][number(0)] for name in read], 1)
            T.buffer_store(memory["c"], value, [(begin + row) * c_row + column])

        left = RunsMatrix(memory["a"], begin * a_row, a_row)
        right = RunsMatrix(memory["panel"], number(0), groups * number(dot.count))
        multiply_runs(left, right, (groups, end - begin, width), start, store, epilogue is None, dot.count)
    return kernel.function


@dataclass(frozen=True)
class RunsMatmul:
    """The kernel of a product.

    Attributes:
        dot: How integers are multiplied.
        tile: Of whose columns panels are.
        left: Type of the left operand.
        right: Type of the right one.
        in_place: Whether rows of the left operand are multiplied where they are.
        zeros: Whether the zero point of the left operand, and that of the right one, may be other than 0 in the form in
            which they are multiplied.
        result: Type of the result.
        epilogue: What is done to each sum, or None.
    """

    dot: Dot
    tile: Tile
    left: str
    right: str
    in_place: bool
    zeros: tuple[bool, bool]
    result: str
    epilogue: Epilogue | None = None

    @property
    def symbol(self) -> str:
        """Its name."""
        parts = [f"softq_matmul_runs_{self.left}_{self.right}", *(["in_place"] if self.in_place else [])]
        parts += [f"{side}_zero" for side, has in zip("ab", self.zeros, strict=True) if has]
        return "_".join([*parts, *([] if self.epilogue is None else [self.epilogue.suffix])])

    @property
    def pointers(self) -> dict[str, str]:
        """Types of what its pointers point to, by name; what is not needed has none."""
        operands = () if self.epilogue is None else self.epilogue.operands
        found = {"a": self.left, "panels": self.dot.right}
        found |= {"sums": "int32", "a_zero": self.left} if self.zeros[0] else {}
        found |= {"b_zero": self.right} if self.zeros[1] else {}
        found |= {"c": self.result} | {f"operand{i}": operand.dtype for i, operand in enumerate(operands)}
        return found | ({} if self.in_place else {"scratch": "uint8"})

    def function(self) -> tirx.PrimFunc:
        """Return the kernel of `batch` products, a matrix of panels for each.

            void symbol(pointers..., int64_t m, int64_t k, int64_t n, int64_t step, int64_t begin, int64_t end)

        Each product takes the rows of `a` that lie `step` behind those of the one before. Work items are numbered over
        batch and blocks of `ROWS` rows.
        """
        with kernel_function(self.symbol, self.pointers, ("m", "k", "n", "step")) as kernel:
            m, _, _, step, begin, end = kernel.sizes.values()
            blocks = ceil_divide(m, number(ROWS))
            with T.serial(begin, end) as item:
                batch, top = tirx.truncdiv(item, blocks), tirx.truncmod(item, blocks) * number(ROWS)
                rows = tirx.min(number(ROWS), m - top)
                self._emit_block(kernel, batch, (batch * step + top, batch * m + top), rows)
        return kernel.function

    def _emit_block(self, kernel: KernelFunction, batch: Any, places: tuple[Any, Any], rows: Any) -> None:
        """Emit the product of some rows: from one row of the left operand on, to one of the result."""
        memory, zero = kernel.memory, number(0)
        _, k, n, *_ = kernel.sizes.values()
        groups, (source, target) = ceil_divide(k, number(self.dot.count)), places
        width, panels = groups * number(self.dot.count), ceil_divide(n, self.tile.columns)
        z, w = (
            memory[f"{side}_zero"][zero].astype("int32") + tirx.IntImm("int32", offset) if has else None
            for side, has, offset in zip("ab", self.zeros, self._offsets(), strict=True)
        )
        left, of_rows = RunsMatrix(memory["a"], source * k, k), None
        if not self.in_place:
            of_rows = T.alloc_buffer((ROWS,), "int32", scope="local")
            factor = zero if w is None else zero - w.astype("int64")
            buffers = memory["a"], memory["scratch"], of_rows
            addresses = [T.address_of(x[at]) for x, at in zip(buffers, (source * k, zero, zero), strict=True)]
            call(rows_symbol(self.dot, self.left), *addresses, k, width, k, factor, zero, rows)
            left = RunsMatrix(memory["scratch"], zero, width)
        first = batch * panels * number(self.tile.columns)
        right = RunsMatrix(memory["panels"], first * width, width)

        def start(row: Any, column: Any) -> Any:
            value: Any = tirx.IntImm("int32", 0)
            if z is not None:
                value = value - z * memory["sums"][first + column]
            if w is not None and of_rows is not None:
                value = value + of_rows[row]
            return value if z is None or w is None else value + k.astype("int32") * z * w

        def store(row: Any, column: Any, value: Any) -> None:
            at = (target + row) * n + column
            T.buffer_store(memory["c"], self._finished(memory, value, at, column), [at])

        multiply_runs(left, right, (groups, rows, n), start, store, self.epilogue is None, self.dot.count)

    def _offsets(self) -> tuple[int, int]:
        return self.dot.left_offset(self.left), self.dot.right_offset(self.right)

    def _finished(self, memory: Any, value: Any, at: Any, column: Any) -> Any:
        if self.epilogue is None:
            return value
        places = {"same": at, "column": column, "one": number(0)}
        return self.epilogue.apply(value, lambda i, operand: memory[f"operand{i}"][places[operand.where]])


def pack_runs_kernel(tile: Tile, dot: Dot, symbol: str, *, transposed: bool, given: str) -> tirx.PrimFunc:
    """Return the kernel that packs matrices of bytes; it has the parameters of `dot_prepack.pack_dots_kernel`."""
    zero, columns = number(0), number(tile.columns)
    types = {"b": given, "panels": dot.right, "sums": "int32"}
    with kernel_function(symbol, types, ("k", "n", "heads", "row", "outer", "inner")) as made:
        b, out, sums = made.memory.values()
        k, n, heads, row, outer, inner, begin, end = made.sizes.values()
        panels, width = ceil_divide(n, columns), ceil_divide(k, number(dot.count)) * number(dot.count)
        total = T.alloc_buffer((1,), "int32", scope="local")
        with T.serial(begin, end) as item, T.serial(zero, columns) as inside:
            column = tirx.truncmod(item, panels) * columns + inside
            source = matrix_start(tirx.truncdiv(item, panels), heads, outer, inner)
            target = (item * columns + inside) * width
            there = tirx.Select(column < n, k, zero)
            T.buffer_store(total, tirx.IntImm("int32", 0), [zero])
            with T.serial(zero, there) as step:
                at = source + (column * row + step if transposed else step * row + column)
                T.buffer_store(out, of_right(dot, given, b[at], 1), [target + step])
                T.buffer_store(total, total[zero] + cast(out[target + step], dot.right, "int32", 1), [zero])
            with T.serial(zero, width - there) as step:
                T.buffer_store(out, tirx.IntImm(dot.right, 0), [target + there + step])
            T.buffer_store(sums, total[zero], [item * columns + inside])
    return made.function
