"""Rows that come as a stream, whose length is known when their last element has come.

A core that takes one element a clock has no length while it computes the first pass over the row; `length` is then what
that pass finishes, as if it were a sum of ones. `streaming` says of any program what its passes are under this
condition, where the length enters them, and which values have to wait for it. A program streams as it is if none has
to: what takes the length are scalars behind the first pass, or values of later passes. Else the values named wait one
pass, and what they follow from is kept for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from softq.rowprog.phases import Phase, is_reduction, number_passes, phases
from softq.rowprog.program import Node, Program
from softq.rowprog.text import node_to_text
from softq.rowprog.types import Kind


@dataclass(frozen=True)
class Streaming:
    """How a program takes a stream.

    Attributes:
        phases: The passes. The first one needs no length; behind it the length is known.
        takers: The values that take the length as an operand, arguments first.
        waiting: Values of elements, and reductions, that come a pass later than they would if the length were known
            from the start, arguments first.
        obstacle: The first of `waiting` as a line of the program's text; None if there is none.
    """

    phases: tuple[Phase, ...]
    takers: tuple[Node, ...]
    waiting: tuple[Node, ...]
    obstacle: str | None

    @property
    def streams(self) -> bool:
        """Whether nothing waits for the length."""
        return not self.waiting


def streaming(program: Program) -> Streaming:
    """Return the passes over a row whose length is known after the first one, and what waits for it."""
    known, streamed = (number_passes(program, streamed=streamed) for streamed in (False, True))
    nodes = program.nodes()
    passed = [node for node in nodes if node.kind is Kind.ROW or is_reduction(node)]
    waiting = tuple(node for node in passed if streamed[node] > known[node])
    return Streaming(
        phases=phases(program, streamed=True),
        takers=tuple(node for node in nodes if any(arg.op == "length" for arg in node.args)),
        waiting=waiting,
        obstacle=node_to_text(program, waiting[0]) if waiting else None,
    )
