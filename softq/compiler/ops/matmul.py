"""Products of matrices, of floats and of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import Value
from softq.compiler.steps.epilogue import Epilogue
from softq.compiler.steps.operands import Operands


@dataclass(frozen=True)
class MatMulOp:
    """A product of matrices of floats: [batch..., M, K] x [K, N] or [batch..., K, N], batch axes all alike, or [M, K] x
    [batch..., K, N].

    Attributes:
        transposed: Whether the right operand is given as [N, K] or [batch..., N, K].
    """

    transposed: bool

    def lower(
        self,
        lowering: Lowering,
        arguments: Sequence[Any],
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the steps and return the product; `others` are what the epilogue reads."""
        given = Operands(lowering.value(arguments[0]), lowering.weight(arguments[1]), self.transposed)
        return lowering.backend.matmul(lowering.builder, given, result, epilogue, others)


@dataclass(frozen=True)
class IntegerMatMulOp:
    """A product of matrices of 8-bit integers, each less its operand's zero point, as int32.

    Arguments are the operands as those of `MatMulOp`, and a zero point for each, of its type.

    Attributes:
        transposed: Whether the right operand is given as [N, K] or [batch..., N, K].
    """

    transposed: bool

    def lower(
        self,
        lowering: Lowering,
        arguments: Sequence[Any],
        result: Any,
        epilogue: Epilogue | None = None,
        others: Sequence[Value] = (),
    ) -> Value:
        """Append the steps and return the product; `others` are what the epilogue reads."""
        given = Operands(lowering.value(arguments[0]), lowering.weight(arguments[1]), self.transposed)
        zeros = [lowering.value(x) for x in arguments[2:]]
        return lowering.backend.integer_matmul(lowering.builder, given, zeros, result, epilogue, others)


ProductOp = MatMulOp | IntegerMatMulOp
