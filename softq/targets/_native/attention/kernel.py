# TVM adds the fields of its classes at run time, and what annotations it has are not those of its functions.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false

"""The kernel of an attention: a block of rows goes from the queries to the result while it is in the cache.

It computes nothing itself but calls other kernels for its rows: the product with the keys, what the graph has between
the products (scaling, masks, the row program of any method), and the product with the values. They are the kernels that
compute the same thing for all rows at once, so that the result is the same to the bit; the scores of a block are in
memory of the thread, the scores of all rows nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from softq.targets._native.attention.blocks import BLOCK, rows_of
from softq.targets._native.tiles import Tile, number

DEPTH = 512
"""Rows of the values that are used for all rows of the block before the next ones: so many stay in the L2 cache."""

SIZES = (
    "rows", "length", "width", "columns", "block", "packed", "heads", "query_row", "query_outer", "query_inner",
    "queries", "result_heads", "key_row", "key_outer", "key_inner", "value_panel", "value_row", "value_outer",
    "value_inner",
)  # fmt: skip
"""The kernel's first scalars: rows for each matrix of keys, length of a row of scores, width of a key, columns of the
result, rows of a block, whether the keys are packed already, heads of the keys; queries and heads of the result; how
far apart in an operand are rows, and matrices: number i starts at i // heads times `outer` and i % heads times `inner`;
how far apart are panels of the values."""

_ALIGNMENT = 64


@dataclass(frozen=True)
class Region:
    """Rows of the thread's memory, of as many elements as the scores have.

    Attributes:
        number: Which region.
        bytes: Bytes of an element.
    """

    number: int
    bytes: int


@dataclass(frozen=True)
class Stage:
    """A kernel that the rows of a block go through between the products; its work items are rows.

    Attributes:
        symbol: Its name.
        pointers: For each of its pointers a region, or the number of one of the attention's own further pointers.
        scalars: How many it has.
    """

    symbol: str
    pointers: tuple[Region | int, ...]
    scalars: int


@dataclass(frozen=True)
class Form:
    """What an attention calls, and in which memory.

    Attributes:
        tile: The tile of its products.
        pack: Symbol of the kernel that packs keys.
        stages: What lies between the products; scores start in region 0.
        regions: Bytes of an element of each region.
        last: The region that the product with the values reads.
        finish: The kernel that makes the result of the second product's, in a region of its own, or None.
        exchanged: Whether its rows are numbered with the heads behind the rows.
    """

    tile: Tile
    pack: str
    stages: tuple[Stage, ...]
    regions: tuple[int, ...]
    last: int
    finish: Stage | None = None
    exchanged: bool = False

    @property
    def called(self) -> tuple[Stage, ...]:
        """All stages, the last one included."""
        return (*self.stages, *([] if self.finish is None else [self.finish]))


PRODUCT = -1
"""Number of the region of the second product's result, whose rows have as many elements as the result's."""


def scratch_parts(form: Form) -> list[tuple[int, str]]:
    """Return the parts of the thread's memory: bytes of an element, and what they are."""
    return [
        *((size, "scores") for size in form.regions),
        (4, "panel"),
        *([] if form.finish is None else [(4, "product")]),
    ]


def attention_kernel(symbol: str, form: Form) -> tirx.PrimFunc:
    """Return the kernel.

        void symbol(const float *queries, const float *keys, const float *panels, const float *values, float *out,
                    void *others..., void *scratch, int64_t SIZES..., int64_t stages' scalars...,
                    int64_t begin, int64_t end)

    Work items are numbered over matrices of keys and blocks of rows. `out` is [matrices, rows, columns]; `keys` is what
    the kernel `pack` takes, `panels` what it gives.
    """
    others = sorted({p for stage in form.called for p in stage.pointers if isinstance(p, int)})
    assert others == list(range(len(others)))
    names = {"queries": "float32", "keys": "float32", "panels": "float32", "values": "float32", "out": "float32"}
    names |= {f"other{i}": "uint8" for i in others} | {"scratch": "uint8"}
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(symbol)
        pointers = {name: T.arg(name, T.handle(dtype)) for name, dtype in names.items()}
        size = {name: T.arg(name, T.int64()) for name in SIZES}
        scalars = [[T.arg(f"s{i}_{j}", T.int64()) for j in range(stage.scalars)] for i, stage in enumerate(form.called)]
        begin, end = T.arg("begin", T.int64()), T.arg("end", T.int64())
        T.func_attr({"global_symbol": symbol, "tirx.noalias": True})
        memory = {
            name: T.decl_buffer((end,), dtype, data=pointers[name], align=4 if dtype == "float32" else 1)
            for name, dtype in names.items()
        }
        _Builder(form, pointers, memory, size, scalars).emit(begin, end)
    return builder.get()


class _Builder:
    def __init__(self, form: Form, pointers: Any, memory: Any, size: Any, scalars: Sequence[Sequence[Any]]) -> None:
        self._form, self._pointers, self._memory, self._size, self._scalars = form, pointers, memory, size, scalars
        self._columns = form.tile.columns
        self._starts: list[Any] = []
        start: Any = number(0)
        for size_of_element in form.regions:
            self._starts.append(start)
            start = start + _aligned(size["block"] * size["length"] * number(size_of_element))
        self._panel = start
        self._product = start + _aligned(size["width"] * number(self._columns * 4))

    def emit(self, begin: Any, end: Any) -> None:
        size = self._size
        with T.serial(begin, end) as item:
            matrix, inside, first, rows = rows_of(item, size["rows"], size["block"])
            self._scores(matrix, inside, rows)
            for stage, scalars in zip(self._form.stages, self._scalars, strict=False):
                self._stage(stage, scalars, first, (first, first + rows))
            self._result(matrix, first, rows)
            if self._form.finish is not None:
                self._finish(self._form.finish, first, rows)

    def _matrix(self, operand: str, matrix: Any) -> Any:
        """Return the position of a matrix of an operand."""
        heads, outer, inner = (self._size[name] for name in ("heads", f"{operand}_outer", f"{operand}_inner"))
        return tirx.truncdiv(matrix, heads) * outer + tirx.truncmod(matrix, heads) * inner

    def _at(self, name: str, position: Any) -> Any:
        return T.address_of(self._memory[name][position])

    def _rows_of(self, region: int, element: Any) -> Any:
        """Return the address of a float of a region's first row."""
        return self._at("scratch", self._starts[region] + element * number(4))

    def _scores(self, matrix: Any, inside: Any, rows: Any) -> None:
        size, columns = self._size, number(self._columns)
        panels = tirx.truncdiv(size["length"] + columns - number(1), columns)
        with T.serial(number(0), panels) as panel:
            at = matrix * panels + panel
            start = panel * columns
            width = tirx.min(columns, size["length"] - start)

            def product(right: Any) -> None:
                left = self._at("queries", self._matrix("query", matrix) + inside * size["query_row"])
                out = self._rows_of(0, start)
                strides = (size["query_row"], columns, size["length"])
                _call(BLOCK, left, right, out, *strides, size["width"], width, number(0), number(0), rows)

            each = size["width"] * columns
            with T.If(size["packed"] != number(0)):
                with T.Then():
                    product(self._at("panels", at * each))
                with T.Else():
                    # The panel is where the kernel expects the one of this number.
                    there = self._at("scratch", self._panel - at * each * number(4))
                    sizes = [size[name] for name in ("width", "length", "heads", "key_row", "key_outer", "key_inner")]
                    _call(self._form.pack, self._pointers["keys"], there, *sizes, at, at + 1)
                    product(self._at("scratch", self._panel))

    def _finish(self, stage: Stage, first: Any, rows: Any) -> None:
        """Call the last kernel: its work items are rows of the result, which may be in another order."""
        if not self._form.exchanged:
            self._stage(stage, self._scalars[-1], first, (first, first + rows))
            return
        queries, heads = self._size["queries"], self._size["result_heads"]
        with T.serial(number(0), rows) as row:
            matrix, query = tirx.truncdiv(first + row, queries), tirx.truncmod(first + row, queries)
            batch, head = tirx.truncdiv(matrix, heads), tirx.truncmod(matrix, heads)
            item = (batch * queries + query) * heads + head
            self._stage(stage, self._scalars[-1], first, (item, item + number(1)))

    def _stage(self, stage: Stage, scalars: Sequence[Any], first: Any, items: tuple[Any, Any]) -> None:
        """Call a kernel for the rows; it takes their numbers among all rows, so memory seems to start before them."""
        pointers: list[Any] = []
        for pointer in stage.pointers:
            if isinstance(pointer, int):
                pointers.append(self._pointers[f"other{pointer}"])
            else:
                of_product = pointer.number == PRODUCT
                start = self._product if of_product else self._starts[pointer.number]
                each = self._size["columns" if of_product else "length"] * number(pointer.bytes)
                pointers.append(self._at("scratch", start - first * each))
        _call(stage.symbol, *pointers, *scalars, *items)

    def _result(self, matrix: Any, first: Any, rows: Any) -> None:
        size, columns = self._size, number(self._columns)
        parts = tirx.truncdiv(size["length"] + number(DEPTH - 1), number(DEPTH))
        # Rows without elements have a result too.
        with T.serial(number(0), tirx.max(parts, number(1))) as part:
            start = part * number(DEPTH)
            steps = tirx.min(number(DEPTH), size["length"] - start)
            with T.serial(number(0), tirx.truncdiv(size["columns"] + columns - number(1), columns)) as panel:
                left = self._rows_of(self._form.last, start)
                right = self._matrix("value", matrix) + panel * size["value_panel"] + start * size["value_row"]
                if self._form.finish is None:
                    out = self._at("out", first * size["columns"] + panel * columns)
                else:
                    out = self._at("scratch", self._product + panel * columns * number(4))
                width = tirx.min(columns, size["columns"] - panel * columns)
                strides = (size["length"], size["value_row"], size["columns"])
                _call(BLOCK, left, self._at("values", right), out, *strides, steps, width, part, number(0), rows)


def _aligned(size: Any) -> Any:
    mask = number(_ALIGNMENT - 1)
    return tirx.truncdiv(size + mask, number(_ALIGNMENT)) * number(_ALIGNMENT)


def _call(symbol: str, *arguments: Any) -> None:
    T.evaluate(T.call_extern("void", symbol, *arguments))
