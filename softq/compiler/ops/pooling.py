"""Pools of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from softq.compiler.backend import Lowering
from softq.compiler.steps.builder import Value


@dataclass(frozen=True)
class GreatestOp:
    """The greatest elements of windows: the argument is images [batch, C, H, W], float32.

    Attributes:
        kernel: Rows and columns of a window.
        strides: From a window to the next, of rows and of columns.
        dilations: From an element of a window to the next.
        before: Places above and to the left that count for nothing.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]

    def lower(self, lowering: Lowering, arguments: Sequence[Any], result: Any) -> Value:
        """Append the step and return the result."""
        append = lowering.backend.greatest
        assert append is not None, "`supports` is asked before"
        return append(lowering.builder, self, lowering.value(arguments[0]), result)
