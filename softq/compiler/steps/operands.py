"""Products of matrices, and the operands of attentions, as backends see them."""

from __future__ import annotations

from dataclasses import dataclass

from softq.artifact.program import Size
from softq.compiler.steps.builder import Array, Value
from softq.compiler.steps.epilogue import Epilogue
from softq.compiler.tir.symbolic import multiplied


@dataclass(frozen=True)
class Weight:
    """A right operand that is known when the model is built, and the same for all products.

    Attributes:
        name: What stands for equal arrays.
        array: The matrix.
    """

    name: object
    array: Array


@dataclass(frozen=True)
class Product:
    """A product of matrices.

    Attributes:
        left: [batch..., M, K] or [M, K].
        right: [K, N] or [batch..., K, N].
        transposed: Whether the right one is given as [N, K] or [batch..., N, K].
        zeros: Of 8-bit integers the zero point of each operand, [1], of its type; none for floats.
        epilogue: What is done to its elements, or None.
        others: What the epilogue reads.
    """

    left: Value
    right: Value | Weight
    transposed: bool
    zeros: tuple[Value, ...] = ()
    epilogue: Epilogue | None = None
    others: tuple[Value, ...] = ()

    @property
    def lead(self) -> tuple[Size, ...]:
        """The axes over which products are numbered."""
        return (self.left if isinstance(self.right, Weight) else self.right).dims[:-2]

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        """M, K and N."""
        given = self.right.array.shape if isinstance(self.right, Weight) else self.right.dims
        return self.left.dims[-2], self.left.dims[-1], given[-2 if self.transposed else -1]

    @property
    def step(self) -> Size:
        """How many rows lie between the left operands of two products: 0 if all have the same."""
        return self.left.dims[-2] if len(self.left.dims) > 2 else 0


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
