"""Products of matrices, of floats, 8-bit integers and weights of 4 bits, and convolutions of the first two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import Value
from softq.compiler.steps.product import Epilogue, Product, Weight


@dataclass(frozen=True)
class MatMulOp:
    """A product of matrices: [batch..., M, K] x [K, N] or [batch..., K, N], batch axes all alike, or [M, K] x
    [batch..., K, N].

    Of floats the result has the operands' type. Of 8-bit integers the arguments are also a zero point for each operand,
    [1], of its type; they are taken off, and the result is int32. The left operand may be int16, less no zero point;
    the result is float32 then, as sums need not fit 32 bits.

    Attributes:
        transposed: Whether the right operand is given as [N, K] or [batch..., N, K].
        integers: Whether it is one of integers.
    """

    transposed: bool
    integers: bool = False

    def lower(
        self,
        lowering: Lowering,
        arguments: Sequence[Any],
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the steps and return the product; `others` are what the epilogue reads."""
        left, right, *zeros = arguments
        given = lowering.value(left), lowering.weight(right), self.transposed, tuple(map(lowering.value, zeros))
        return lowering.backend.product(lowering.builder, Product(*given, epilogue, tuple(others)), result)


@dataclass(frozen=True)
class PackedMatMulOp:
    """A product with weights of 4 bits: arguments are float32 [M, K] and constants, all of N rows for the N columns.

    They are codes, uint8 [N, K' / 2], two a byte with the first in its low bits, K' the next multiple of `block`; their
    scales and zero points, float32 [N, K' / block].

    Attributes:
        block: How many numbers have a scale together.
    """

    block: int

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        append = lowering.backend.packed_product
        assert append is not None, "`supports` is asked before"
        left, *rest = arguments
        weights = [weight for x in rest if isinstance(weight := lowering.weight(x), Weight)]
        assert len(weights) == len(rest), "the converter takes constants alone"
        return append(lowering.builder, self, lowering.value(left), weights, result)


@dataclass(frozen=True)
class ConvolutionOp:
    """A convolution: arguments are images [batch, C, H, W], kernels [M, C / groups, h, w] and a bias [M], all float32.

    Attributes:
        groups: How many.
        strides: Of rows and of columns.
        dilations: Of rows and of columns.
        before: Zeros above and to the left.
        beyond: Whether there are as many zeros along an axis as a window reaches over, so that a window may have only
            zeros.
    """

    groups: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    beyond: bool = False

    def lower(
        self,
        lowering: Lowering,
        arguments: Sequence[Any],
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the steps and return the result; `others` are what the epilogue reads."""
        images, kernels, bias = arguments
        given = lowering.value(images), lowering.weight(kernels, 4), lowering.value(bias)
        append = lowering.backend.convolution
        assert append is not None, "`supports` is asked before"
        return append(lowering.builder, Convolution(self, *given, epilogue, tuple(others)), result)


@dataclass(frozen=True)
class Convolution:
    """A convolution as backends see it.

    Attributes:
        operator: How its windows lie.
        x: Images [batch, C, H, W].
        kernel: Kernels [M, C / groups, h, w].
        bias: [M].
        epilogue: What is done to its elements, or None.
        others: What the epilogue reads.
    """

    operator: ConvolutionOp
    x: Value
    kernel: Value | Weight
    bias: Value
    epilogue: Epilogue | None = None
    others: tuple[Value, ...] = ()


@dataclass(frozen=True)
class IntegerConvolutionOp:
    """A convolution of 8-bit integers less their zero points, as int32.

    Arguments are images [batch, C, H, W], constant kernels [M, C / groups, h, w], the zero points of the kernels, int32
    [M], and that of the images, [1], of their type, which also stands around them.

    Attributes:
        groups: How many.
        strides: Of rows and of columns.
        dilations: Of rows and of columns.
        before: Zero points above and to the left.
    """

    groups: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the steps and return the result."""
        append, (x, w, *zeros) = lowering.backend.integer_convolution, arguments
        assert append is not None, "`supports` is asked before"
        kernel = lowering.weight(w, rank=4)
        assert isinstance(kernel, Weight), "the converter takes constants alone"
        given = IntegerConvolution(self, lowering.value(x), kernel, *map(lowering.value, zeros))
        return append(lowering.builder, given, result)


@dataclass(frozen=True)
class IntegerConvolution:
    """A convolution of 8-bit integers as backends see it; its arguments are those of the operator."""

    operator: IntegerConvolutionOp
    x: Value
    kernel: Weight
    kernel_zeros: Value
    zero: Value
