"""What a fused attention calls, and which numbers and how much memory it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce

from softq.artifact.program import Size
from softq.codegen.cpu.gemm.dot_product import Dot
from softq.codegen.cpu.gemm.tiles import Tile
from softq.compiler.tir.symbolic import ceiling, computed, multiplied

SIZES = (
    "rows", "length", "width", "columns", "block", "packed", "heads", "query_row", "query_outer", "query_inner",
    "queries", "result_heads", "key_row", "key_outer", "key_inner", "value_panel", "value_row", "value_outer",
    "value_inner",
)  # fmt: skip
"""The kernel's first scalars: rows for each matrix of keys, length of a row of scores, width of a key, columns of the
result, rows of a block, whether the keys are packed already, heads of the keys; queries and heads of the result; how
far apart in an operand are rows, and matrices: number i starts at i // heads times `outer` and i % heads times `inner`;
how far apart are panels of the values."""

INTEGER_SIZES = ("query_zero", "key_zero", "weight_zero", "value_zero")
"""The scalars behind them if a product is one of integers: zero points of the operands as `integer_matmul` has them."""


@dataclass(frozen=True)
class Region:
    """Rows of the thread's memory as one kernel reads or writes them, one after another.

    Attributes:
        number: Which region: kernels that name the same one share its memory.
        bytes: Bytes of an element.
        row: The kernel's scalar that counts the elements of a row.
    """

    number: int
    bytes: int
    row: str = "length"


@dataclass(frozen=True)
class Stage:
    """A kernel that the rows of a block go through between the products; its work items are rows.

    Attributes:
        symbol: Its name.
        pointers: For each of its pointers a region, or the number of one of the attention's own further pointers.
        scalars: How many it has.
        widths: Bytes of an element of each pointer to a region, where it takes by how many elements places there are
            too high (`shifting`); empty where memory seems to start before the region.
    """

    symbol: str
    pointers: tuple[Region | int, ...]
    scalars: int
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Integers:
    """A product of integers, whose right operand is packed and comes with the sums of its columns.

    Attributes:
        dot: How they are multiplied.
        left: Type of the left operand.
        sums: Symbol of the kernel of a block of rows.
        operands: Numbers of the attention's own further pointers that this kernel reads, too.
        in_place: Whether rows of the left operand have the type and the offset that they are multiplied with, so that
            they are read where they are; behind the last one it may be read up to a group of them.
    """

    dot: Dot
    left: str
    sums: str
    operands: tuple[int, ...] = ()
    in_place: bool = False
    parts: bool = False


@dataclass(frozen=True)
class Form:
    """What an attention calls, and in which memory.

    Attributes:
        tile: The tile of its products.
        pack: Symbol of the kernel that packs keys, if they are floats.
        shifted: Whether that takes by how many elements places of panels are too high.
        stages: What lies between the products; scores start in region 0.
        last: The region that the product with the values reads.
        lengths: Number of lengths that rows have between the products, without those of the scores and the result.
        finish: The kernel that makes the result of the second product's, in a region of its own, or None.
        to_bsnh: Whether its rows are numbered with the heads behind the rows.
        first: What the product with the keys is, if not one of floats.
        second: What the product with the values is, if not one of floats.
        given: Whether the first stage reads scores that are given, so that there is no product with keys.
        block: Symbol of the kernel of a block of the product of floats with the keys.
        operands: Numbers of the attention's own further pointers that this kernel reads, too.
    """

    tile: Tile
    pack: str
    stages: tuple[Stage, ...]
    last: int
    lengths: int = 0
    finish: Stage | None = None
    to_bsnh: bool = False
    first: Integers | None = None
    second: Integers | None = None
    given: bool = False
    block: str = ""
    operands: tuple[int, ...] = ()
    shifted: bool = False

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the kernel's own scalars."""
        lengths = tuple(f"length{i}" for i in range(self.lengths))
        return SIZES + lengths + (INTEGER_SIZES if self.first or self.second else ())

    @property
    def called(self) -> tuple[Stage, ...]:
        """All stages, the last one included."""
        return self.stages if self.finish is None else (*self.stages, self.finish)


PRODUCT = -1
"""Number of the region of the second product's result, whose rows have as many elements as the result's."""


ALIGNMENT = 64
GUARD = 0
"""Unused bytes between parts of the thread's memory: tests ask for some, and check that no kernel writes them."""


@dataclass(frozen=True)
class Layout:
    """The places of the parts of the thread's memory, in bytes, computed from `Form.sizes`.

    Attributes:
        parts: Start and end of each part, by name.
        bytes: Size of the whole memory.
    """

    parts: Mapping[str, tuple[Size, Size]]
    bytes: Size


def lay_out(form: Form) -> Layout:
    """Return the layout: each region holds a block of the longest rows that any kernel has there."""
    parts: dict[str, tuple[Size, Size]] = {}
    end: Size = 0
    for name, needed in _list_parts(form):
        parts[name] = end, computed("add", end, needed)
        end = computed("add", end, computed("add", multiplied([ceiling(needed, ALIGNMENT), ALIGNMENT]), GUARD))
    return Layout(parts, end)


def _list_parts(form: Form) -> Iterator[tuple[str, Size]]:
    rows: dict[int, dict[str, int]] = {} if form.given else {0: {"length": 4}}
    for region in (p for stage in form.called for p in stage.pointers if isinstance(p, Region)):
        widths = rows.setdefault(region.number, {})
        widths[region.row] = max(widths.get(region.row, 0), region.bytes)
    for number, widths in rows.items():
        row = reduce(partial(computed, "max"), (multiplied([row, each]) for row, each in widths.items()))
        yield f"region{number}", multiplied(["block", row])
    if form.first is None and not form.given:
        yield "panel", multiplied(["width", 4 * form.tile.columns])
    for product, name, inner in ((form.first, "query", "width"), (form.second, "weight", "length")):
        if product is not None:
            if not product.in_place:
                groups = ceiling(inner, product.dot.count)
                yield f"{name}_rows", multiplied(["block", groups, product.dot.group_bytes])
            yield f"{name}_sums", multiplied(["block", 4])
