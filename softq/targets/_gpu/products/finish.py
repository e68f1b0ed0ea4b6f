"""What is done to each element of a product before it is written."""

from __future__ import annotations

from dataclasses import dataclass

from softq.targets._gpu.products.operands import HALF_KINDS, Operands
from softq.targets._gpu.text import Text


@dataclass(frozen=True)
class Finish:
    """Nothing: elements are written as they are, halves rounded once.

    Attributes:
        more: Further parameters of the kernel, behind the result.
    """

    more: str = ""

    def value(self, text: Text, element: str, at: str, column: str) -> str:
        """Return the result for an element (f32, or i32 of integers) at a place and column of the result."""
        del text, at, column
        return element


PLAIN = Finish()


def stored(operands: Operands, value: str) -> str:
    """Return an element as it stands in memory."""
    return f"(u16)to_{operands.left}({value})" if operands.left in HALF_KINDS else value
