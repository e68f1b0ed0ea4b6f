"""An attention of a lowered model, and its operands as backends see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softq.artifact.program import Size
from softq.compiler.steps.builder import Value
from softq.compiler.tir.symbolic import multiplied


@dataclass(frozen=True)
class Attention:
    """Bindings of `main` that are one attention: a product, what happens to each element or row of it, and a product.

    Attributes:
        queries: The matrices of queries; None where the scores are given.
        scores: The first product; None where the scores are given.
        stages: Elementwise functions and row programs between the products, in their order.
        stage_inputs: For each of them the position of the argument that comes from the one before.
        product: The second product.
        keys: The matrices of keys, or None; the same ones serve `group` matrices of queries one after another.
        values: The matrices of values.
        group: How many matrices of queries share one of keys.
        heads: Where an operand has the layout BSNH, [batch, rows, heads, width], the heads of the keys; else 1.
        bsnh: Whether queries, keys and values have this layout; else they are [..., rows, width] (BNSH).
        finish: The elementwise function of the second product's result, usually its division, or None.
        finish_input: The position of its argument that is that result.
        to_bsnh: Whether its result has the layout BSNH.
    """

    queries: Any
    scores: Any
    stages: tuple[Any, ...]
    stage_inputs: tuple[int, ...]
    product: Any
    keys: Any
    values: Any
    group: int
    heads: Any
    bsnh: tuple[bool, bool, bool]
    finish: Any = None
    finish_input: int = 0
    to_bsnh: bool = False

    @property
    def last(self) -> Any:
        """The binding of the result."""
        return self.product if self.finish is None else self.finish


@dataclass(frozen=True)
class Matrices:
    """Queries, keys or values of an attention.

    Attributes:
        value: [..., rows, width] (BNSH), or [batch, rows, heads, width] (BSNH).
        bsnh: Whether it is the latter.
    """

    value: Value
    bsnh: bool

    @property
    def width(self) -> Size:
        """Elements of a row."""
        return self.value.dims[-1]

    @property
    def rows(self) -> Size:
        """Rows of a matrix."""
        return self.value.dims[-3 if self.bsnh else -2]

    @property
    def matrices(self) -> Size:
        """Number of matrices."""
        dims = self.value.dims
        return multiplied([*dims[:-3], dims[-2]] if self.bsnh else dims[:-2])

    def strides(self, heads: Size) -> tuple[Size, Size, Size]:
        """Return how far apart are rows, matrices of different numbers // heads, and of % heads."""
        whole = multiplied([self.rows, self.width])
        if self.bsnh:
            return multiplied([heads, self.width]), multiplied([heads, whole]), self.width
        return self.width, multiplied([heads, whole]), whole
