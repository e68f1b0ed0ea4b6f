"""The operators that have kernels of their own: what an imported model calls by name, and what each call means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from softq.rowprog import Program


@dataclass(frozen=True)
class RowCall:
    """A softmax: arguments are scores, the mask if the program has one, and its run-time parameters.

    Attributes:
        program: What it computes; the results are its interface's outputs.
        max_length: Greatest length of a row that is proved.
        site: Id of the softmax in the model.
    """

    program: Program
    max_length: int
    site: str


@dataclass(frozen=True)
class MatMulCall:
    """A product of matrices of floats: [batch..., M, K] x [K, N] or [batch..., K, N], batch axes all alike, or [M, K] x
    [batch..., K, N].

    Attributes:
        transposed: Whether the right operand is given as [N, K] or [batch..., N, K].
    """

    transposed: bool


@dataclass(frozen=True)
class IntegerMatMulCall:
    """A product of matrices of 8-bit integers, each less its operand's zero point, as int32.

    Arguments are the operands as those of `MatMulCall`, and a zero point for each, of its type.

    Attributes:
        transposed: Whether the right operand is given as [N, K] or [batch..., N, K].
    """

    transposed: bool


@dataclass(frozen=True)
class ConvolutionCall:
    """A convolution of groups of few channels: arguments are images [batch, C, H, W], kernels [M, C / groups, h, w]
    and a bias [M], all float32.

    Attributes:
        groups: How many.
        strides: Of rows and of columns.
        dilations: Of rows and of columns.
        before: Zeros above and to the left.
    """

    groups: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]


@dataclass(frozen=True)
class SizesCall:
    """Sizes as a tensor: the argument is a shape, the result holds its numbers."""


@dataclass(frozen=True)
class CumSumCall:
    """Sums along an axis: the argument is a tensor [outer, length, inner], the result has its shape and type.

    Attributes:
        exclusive: Whether an element's sum is without itself.
        reverse: Whether sums go from the last element to the first.
    """

    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class PositionsCall:
    """Indices counted from the front: arguments are int64 indices [..., D] and the extents of the D axes.

    The result is the indices with their axis' extent added where they are negative. One outside its axis ends the run.

    Attributes:
        message: What the user is told then.
    """

    message: str


@dataclass(frozen=True)
class ScatterCall:
    """A tensor with some elements replaced: arguments are data, checked positions [..., D] and updates.

    Attributes:
        depth: D, how many of the leading axes of the data a position has.
        reduction: How an update is joined with what is there: ONNX's none, add, mul, max or min.
    """

    depth: int
    reduction: str


KernelCall: TypeAlias = (
    RowCall | MatMulCall | IntegerMatMulCall | ConvolutionCall | SizesCall | CumSumCall | PositionsCall | ScatterCall
)


def constant(array: NDArray[np.generic]) -> relax.Expr:
    """Return an array as a constant of the same type: left to itself TVM makes int64 scalars int32."""
    return relax.const(np.asarray(array, order="C"), str(array.dtype))
