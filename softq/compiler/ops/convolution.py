"""Convolutions of groups of few channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import Value


@dataclass(frozen=True)
class ConvolutionOp:
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

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        x, w, bias = (lowering.value(argument) for argument in arguments)
        return lowering.backend.convolution(lowering.builder, self, x, w, bias, result)
