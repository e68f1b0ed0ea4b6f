"""The numbers of neighbouring rows side by side: one vector of them takes as many instructions as the number of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tvm.ir import Expr

from softq.codegen.cpu.rows.emission import Emission
from softq.codegen.cpu.rows.tir import shuffle
from softq.rowprog.ops import names_of
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node
from softq.rowprog.types import Kind

_PLAIN = names_of("arithmetic", "logic", "conversion")
"""Operators that give vectors the very results that they give numbers."""


class RowGroup:
    """The numbers of a group of rows.

    Args:
        rows: Where the numbers of each row are.
        passes: What the program computes; row values may ask for any of its numbers.
    """

    def __init__(self, rows: Sequence[Emission], passes: Sequence[Phase]) -> None:
        self._rows, first = rows, rows[0]
        self.numbers = Emission(first.kernel, first.outer, lanes=len(rows))
        users = [node for p in passes for node in (*p.rows, *p.reductions)]
        self._used = {arg for node in users for arg in node.args if arg.kind is Kind.SCALAR}

    def keep(self, found: Mapping[Node, Expr]) -> None:
        """Remember reductions of all rows."""
        for node, x in found.items():
            self.numbers.keep(node, x)
            self._hand_out(node)

    def compute(self, nodes: Iterable[Node]) -> None:
        """Emit scalars whose operands are there."""
        for node in nodes:
            for arg in node.args:
                self._collect(arg)
            self.numbers.compute(node)
            self._hand_out(node)

    def _hand_out(self, node: Node) -> None:
        if node in self._used:
            for lane, row in enumerate(self._rows):
                row.keep(node, shuffle([self.numbers.value(node)], [lane]))

    def _collect(self, node: Node) -> None:
        """Put side by side what each row has of its own: a parameter of its head."""
        if self._rows[0].has(node) and not self.numbers.has(node):
            self.numbers.keep(node, shuffle([row.value(node) for row in self._rows], range(len(self._rows))))


def is_possible(passes: Sequence[Phase]) -> bool:
    """Say whether all numbers of a program's rows are computed by operators that vectors have."""
    return all(node.op in _PLAIN for p in passes for node in (*p.setup, *p.scalars))
