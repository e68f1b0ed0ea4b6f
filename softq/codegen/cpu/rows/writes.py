"""What a pass writes: from which of a block's vectors, and how it stands in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm.ir import Expr

from softq.codegen.cpu.rows.blocks import Block
from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.lane_widths import fits
from softq.codegen.cpu.rows.load_store import Line, packed, written
from softq.codegen.cpu.rows.tir import F32, bits_of, opaque
from softq.rowprog.program import Node

_TRIVIAL = 7
"""Operators up to which a pass is taken for one that LLVM could see to be a copy or a constant; hiding costs 5 %."""


@dataclass(frozen=True)
class Write:
    """A row value that is written.

    Attributes:
        node: The value.
        line: Where.
        stored: Whether a later pass reads it, else it is an output.
    """

    node: Node
    line: Line
    stored: bool

    @property
    def held(self) -> str:
        """The type of the memory."""
        return self.line.memory.name

    def places(self, block: Block) -> Sequence[Emission]:
        """Return where in a block it is written from."""
        in_bytes = bool(block.narrow) and bits_of(self.held) == 8 and fits(self.node, block.narrow[0].kernel)
        return block.narrow if in_bytes else block.wide

    def value(self, e: Emission, loop: Sequence[Node] | None = None) -> Expr:
        """Return it as its memory holds it.

        Args:
            e: Where it was computed.
            loop: What else is computed in the loop that writes it, if it is in one: LLVM makes loops that copy or
                repeat what it knows calls of the C library's memcpy and memset.
        """
        x = (packed if self.stored else written)(e, self.node, self.held)
        hide = loop is not None and (len(loop) <= _TRIVIAL or self.held != F32)
        return opaque(x, self.held, e.lanes, e.at) if hide else x
