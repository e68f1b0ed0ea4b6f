"""The kernel of an attention: a block of rows goes from the queries to the result while it is in the cache.

It computes nothing itself but calls other kernels for its rows: the product with the keys, what the graph has between
the products (scaling, masks, the row program of any method), and the product with the values. They are the kernels that
compute the same thing for all rows at once, so that the result is the same to the bit; the scores of a block are in
memory of the thread, the scores of all rows nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from softq.codegen.cpu.attention.form import PRODUCT, Form, Integers, Stage, lay_out
from softq.codegen.cpu.gemm.dot_prepack import rows_symbol
from softq.codegen.cpu.gemm.dot_product import PART
from softq.codegen.cpu.gemm.matmul import BLOCK
from softq.codegen.cpu.gemm.tiles import call, ceil_divide, matrix_start, number, rows_of
from softq.compiler.tir.kernel_function import KernelFunction, kernel_function
from softq.compiler.tir.symbolic import expression, operate, resolve

DEPTH = 512
"""Rows of the values that are used for all rows of the block before the next ones: so many stay in the L2 cache."""

_SCORES = ("query", "key", "panels", "query_row", "width", "length")
_RESULT = ("weight", "value", "values", "length", "length", "columns")
"""Of both products: the operands, the pointer to panels of the right one, how far apart are rows of the left one, their
length, and the number of columns."""


def attention_kernel(symbol: str, form: Form) -> tirx.PrimFunc:
    """Return the kernel.

        void symbol(const Q *queries, const float *keys, const K *panels, [const int32_t *key_sums,] const V *values,
                    [const int32_t *value_sums,] O *out, void *others..., void *scratch, int64_t SIZES...,
                    [int64_t INTEGER_SIZES...,] int64_t stages' scalars..., int64_t begin, int64_t end)

    Work items are numbered over matrices of keys and blocks of rows. `out` is [matrices, rows, columns]; `keys` is what
    the kernel `pack` takes, `panels` what it gives. In a product of integers the operands have their types, the right
    one is always packed, and sums of its columns follow it.
    """
    first, second, real = form.first, form.second, "float32"
    read = [form.operands, *(stage.pointers for stage in form.called)]
    read += [x.operands for x in (first, second) if x is not None]
    others = sorted({p for pointers in read for p in pointers if isinstance(p, int)})
    assert others == list(range(len(others)))
    names = {} if form.given else {"queries": first.left if first else real, "keys": real}
    names |= {} if form.given else {"panels": first.dot.right if first else real}
    names |= {"key_sums": "int32"} if first else {}
    names |= {"values": second.dot.right, "value_sums": "int32"} if second else {"values": real}
    names |= {"out": real} | {f"other{i}": "uint8" for i in others} | {"scratch": "uint8"}
    scalars = [f"s{i}_{j}" for i, stage in enumerate(form.called) for j in range(stage.scalars)]
    with kernel_function(symbol, names, (*form.sizes, *scalars)) as kernel:
        _Builder(form, kernel).emit()
    return kernel.function


class _Builder:
    def __init__(self, form: Form, kernel: KernelFunction) -> None:
        self._form, self._pointers, self._memory, self._size = form, kernel.pointers, kernel.memory, kernel.sizes
        self._scalars = [[self._size[f"s{i}_{j}"] for j in range(stage.scalars)] for i, stage in enumerate(form.called)]
        self._columns = number(form.tile.columns)
        parts = lay_out(form).parts.items()
        self._start = {name: expression(resolve(start, self._size.__getitem__, operate)) for name, (start, _) in parts}

    def emit(self) -> None:
        size, form = self._size, self._form
        with T.serial(size["begin"], size["end"]) as item:
            matrix, inside, first, rows = rows_of(item, size["rows"], size["block"])
            if not form.given:
                self._multiply(matrix, inside, rows)
            for stage, scalars in zip(form.stages, self._scalars, strict=False):
                self._stage(stage, scalars, first, (first, first + rows))
            if form.second is None:
                self._result(matrix, first, rows)
            elif form.second.parts:
                self._parts(form.second, matrix, rows, lambda at: self._out(first, at))
            else:
                weights = self._part(f"region{form.last}")
                self._integers(form.second, _RESULT, weights, matrix, rows, lambda at: self._out(first, at))
            if form.finish is not None:
                self._finish(form.finish, first, rows)

    def _multiply(self, matrix: Any, inside: Any, rows: Any) -> None:
        """Emit the product with the keys."""
        first = self._form.first
        queries = self._at("queries", self._matrix("query", matrix) + inside * self._size["query_row"])
        if first is None:
            self._scores(queries, matrix, rows)
        else:
            self._integers(first, _SCORES, queries, matrix, rows, lambda at: self._part("region0", at))

    def _matrix(self, operand: str, matrix: Any) -> Any:
        """Return the position of a matrix of an operand."""
        heads, outer, inner = (self._size[name] for name in ("heads", f"{operand}_outer", f"{operand}_inner"))
        return matrix_start(matrix, heads, outer, inner)

    def _at(self, name: str, position: Any) -> Any:
        return T.address_of(self._memory[name][position])

    def _part(self, name: str, element: Any = 0) -> Any:
        """Return the address of an element of 32 bits of a part of the thread's memory."""
        return self._at("scratch", self._start[name] + element * number(4))

    def _out(self, first: Any, column: Any) -> Any:
        """Return the address of a column of the second product's result."""
        if self._form.finish is None:
            return self._at("out", first * self._size["columns"] + column)
        return self._part(f"region{PRODUCT}", column)

    def _integers(
        self, product: Integers, names: Sequence[str], source: Any, matrix: Any, rows: Any, out: Callable[[Any], Any]
    ) -> None:
        """Emit a product of integers; `out` gives the address of a column of its first row."""
        left, right, there, *sizes = names
        source_row, inner, total = (self._size[name] for name in sizes)
        dot, zero, columns = product.dot, number(0), self._columns
        groups = ceil_divide(inner, number(product.dot.count))
        row, panels = groups * number(dot.count), ceil_divide(total, columns)
        z, w = self._size[f"{left}_zero"], self._size[f"{right}_zero"]
        sums, others = self._part(f"{left}_sums"), [self._pointers[f"other{i}"] for i in product.operands]
        if product.in_place:
            block, block_row = source, source_row
            with T.serial(zero, rows * number(4)) as i:
                at = self._start[f"{left}_sums"] + i
                T.buffer_store(self._memory["scratch"], tirx.IntImm("uint8", 0), [at])
        else:
            block, block_row = self._part(f"{left}_rows"), row
            call(rows_symbol(dot, product.left), source, block, sums, source_row, row, inner, zero - w, zero, rows)

        def multiply(at: Any, start: Any, width: Any) -> None:
            operand, of_columns = self._at(there, at * row * columns), self._at(f"{right}_sums", at * columns)
            numbers = (block_row, total, groups, width, zero - z, inner * z * w, zero, rows)
            call(product.sums, block, operand, of_columns, sums, out(start), *others, *numbers)

        if dot.runs:  # The columns of all panels are one behind another.
            multiply(matrix * panels, zero, total)
            return
        with T.serial(zero, panels) as panel:
            start = panel * columns
            multiply(matrix * panels + panel, start, tirx.min(columns, total - start))

    def _parts(self, product: Integers, matrix: Any, rows: Any, out: Callable[[Any], Any]) -> None:
        """Emit the product with the values by sums of parts of the rows, which are read where they are."""
        size, columns, zero, dot = self._size, self._columns, number(0), product.dot
        length, total = size["length"], size["columns"]
        panels, row = ceil_divide(total, columns), ceil_divide(length, number(dot.count)) * number(dot.count)
        with T.serial(zero, tirx.max(ceil_divide(length, number(PART)), number(1))) as part:
            start = part * number(PART)
            steps = ceil_divide(tirx.min(number(PART), length - start), number(dot.count))
            with T.serial(zero, panels) as panel:
                left = self._at("scratch", self._start[f"region{self._form.last}"] + start * number(2))
                right = self._at("values", ((matrix * panels + panel) * row + start) * columns)
                at = panel * columns
                numbers = (length, total, steps, tirx.min(columns, total - at), part, zero, rows)
                call(product.sums, left, right, out(at), *numbers)

    def _scores(self, queries: Any, matrix: Any, rows: Any) -> None:
        """Emit the product of floats with the keys, whose panels are packed here if they are not packed already."""
        size, columns, zero = self._size, self._columns, number(0)
        panels, others = (
            ceil_divide(size["length"], columns),
            [self._pointers[f"other{i}"] for i in self._form.operands],
        )
        with T.serial(zero, panels) as panel:
            at, start = matrix * panels + panel, panel * columns
            width, strides = tirx.min(columns, size["length"] - start), (size["query_row"], columns, size["length"])

            def multiply(keys: Any) -> None:
                scores = self._part("region0", start)
                call(self._form.block, queries, keys, scores, *others, *strides, size["width"], width, zero, zero, rows)

            each = size["width"] * columns
            with T.If(size["packed"] != zero):
                with T.Then():
                    multiply(self._at("panels", at * each))
                with T.Else():
                    sizes = [size[name] for name in ("width", "length", "heads", "key_row", "key_outer", "key_inner")]
                    # The panel is where the kernel expects the one of this number.
                    before = number(0) if self._form.shifted else at * each * number(4)
                    there = self._at("scratch", self._start["panel"] - before)
                    shifts = [at * each] if self._form.shifted else []
                    call(self._form.pack, self._pointers["keys"], there, *sizes, *shifts, at, at + 1)
                    multiply(self._part("panel"))

    def _stage(self, stage: Stage, scalars: Sequence[Any], first: Any, items: tuple[Any, Any]) -> None:
        """Call a kernel for the rows; it takes their numbers among all rows.

        So memory seems to start before them, or it is told where the rows of memory begin.
        """
        pointers: list[Any] = []
        shifts: list[Any] = []
        widths = iter(stage.widths)
        for pointer in stage.pointers:
            if isinstance(pointer, int):
                pointers.append(self._pointers[f"other{pointer}"])
            else:
                length, start = self._size[pointer.row], self._start
                if stage.widths:
                    pointers.append(self._at("scratch", start[f"region{pointer.number}"]))
                    shifts.append(first * length * number(pointer.bytes // next(widths)))
                    continue
                before = first * length * number(pointer.bytes)
                pointers.append(self._at("scratch", start[f"region{pointer.number}"] - before))
        call(stage.symbol, *pointers, *scalars, *shifts, *items)

    def _result(self, matrix: Any, first: Any, rows: Any) -> None:
        size, columns, zero = self._size, self._columns, number(0)
        # Rows without elements have a result too.
        with T.serial(zero, tirx.max(ceil_divide(size["length"], DEPTH), number(1))) as part:
            start = part * number(DEPTH)
            steps = tirx.min(number(DEPTH), size["length"] - start)
            with T.serial(zero, ceil_divide(size["columns"], columns)) as panel:
                left = self._part(f"region{self._form.last}", start)
                right = self._matrix("value", matrix) + panel * size["value_panel"] + start * size["value_row"]
                out, width = self._out(first, panel * columns), tirx.min(columns, size["columns"] - panel * columns)
                strides = (size["length"], size["value_row"], size["columns"])
                call(BLOCK, left, self._at("values", right), out, *strides, steps, width, part, zero, rows)

    def _finish(self, stage: Stage, first: Any, rows: Any) -> None:
        """Call the last kernel: its work items are rows of the result, which may be in another order."""
        if not self._form.to_bsnh:
            self._stage(stage, self._scalars[-1], first, (first, first + rows))
            return
        queries, heads = self._size["queries"], self._size["result_heads"]
        with T.serial(number(0), rows) as row:
            matrix, query = tirx.truncdiv(first + row, queries), tirx.truncmod(first + row, queries)
            batch, head = tirx.truncdiv(matrix, heads), tirx.truncmod(matrix, heads)
            item = (batch * queries + query) * heads + head
            self._stage(stage, self._scalars[-1], first, (item, item + number(1)))
