"""Rows of bytes in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T


@dataclass(frozen=True)
class RunsMatrix:
    """Rows of bytes in memory.

    Attributes:
        buffer: The memory.
        start: Where the first row begins.
        row: How far rows are apart.
    """

    buffer: Any
    start: Any
    row: Any

    def address(self, row: Any) -> Any:
        """Return where a row begins."""
        return T.address_of(self.buffer[self.start + row * self.row])
