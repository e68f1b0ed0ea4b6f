"""What a fused attention calls, and which numbers and how much memory it is given."""

from __future__ import annotations

from dataclasses import dataclass

from softq.codegen.cpu.gemm.dot_product import Dot
from softq.codegen.cpu.gemm.tiles import Tile

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
        regions: Bytes of an element of each region.
        last: The region that the product with the values reads.
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
    regions: tuple[int, ...]
    last: int
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
        return SIZES + (INTEGER_SIZES if self.first or self.second else ())

    @property
    def called(self) -> tuple[Stage, ...]:
        """All stages, the last one included."""
        return self.stages if self.finish is None else (*self.stages, self.finish)


PRODUCT = -1
"""Number of the region of the second product's result, whose rows have as many elements as the result's."""


def scratch_parts(form: Form) -> list[tuple[str, int, str, str]]:
    """Return the parts of the thread's memory: name, bytes of an element, and what counts rows and elements of a row.

    Beside `SIZES` these are `panel`, the columns of a panel, `query_groups` and `weight_groups`, groups of numbers of
    a row, and `one`.
    """
    parts = [(f"region{i}", size, "block", "length") for i, size in enumerate(form.regions)]
    if form.first is None and not form.given:
        parts.append(("panel", 4, "width", "panel"))
    for product, name in ((form.first, "query"), (form.second, "weight")):
        if product is not None:
            parts += [] if product.in_place else [(f"{name}_rows", product.dot.group_bytes, "block", f"{name}_groups")]
            parts.append((f"{name}_sums", 4, "block", "one"))
    if form.finish is not None:
        parts.append((f"region{PRODUCT}", 4, "block", "columns"))
    return parts
