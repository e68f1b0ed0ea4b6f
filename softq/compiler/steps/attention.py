"""An attention of a lowered model: a product, what happens to each element or row of it, and a product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Attention:
    """Bindings of `main` that are one attention.

    Attributes:
        queries: The matrices of queries.
        scores: The first product.
        between: Elementwise functions and row programs, in their order.
        followed: For each of them the position of the argument that comes from the one before.
        product: The second product.
        keys: The matrices of keys; the same ones serve `group` matrices of queries one after another.
        values: The matrices of values.
        group: How many.
        heads: Where queries, keys or values have their heads side by side, [batch, rows, heads, width], the heads of
            the keys; else 1.
        bsnh: Whether queries, keys and values have.
        finish: The elementwise function of the second product's result, usually its division, or None.
        finished: The position of its argument that is that result.
        to_bsnh: Whether it puts the heads side by side.
    """

    queries: Any
    scores: Any
    between: tuple[Any, ...]
    followed: tuple[int, ...]
    product: Any
    keys: Any
    values: Any
    group: int
    heads: Any
    bsnh: tuple[bool, bool, bool]
    finish: Any = None
    finished: int = 0
    to_bsnh: bool = False

    @property
    def last(self) -> Any:
        """The binding of the result."""
        return self.product if self.finish is None else self.finish
