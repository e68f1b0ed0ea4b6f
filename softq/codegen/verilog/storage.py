"""Which values of an element the memories between passes keep, and which a later pass computes again.

What a pass computes from the scores may stand in the memory behind it instead of them: then the next pass neither
subtracts nor looks anything up again, and is shorter. A wider word may need more blocks of memory, a table that is read
in one pass less needs fewer; the way with the fewest blocks is taken, then the one that computes least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from softq.codegen.verilog.pipeline import table_for
from softq.codegen.verilog.registers import WritableTable
from softq.codegen.verilog.signals import shape
from softq.codegen.verilog.simplification import Simplified
from softq.rowprog.phases import Phase, phases
from softq.rowprog.program import Node, walk

BLOCKS = ((1, 16384), (2, 8192), (4, 4096), (9, 2048), (18, 1024), (36, 512))
"""Bits and words of a block of memory of 18 kilobits, in devices of Lattice and of AMD."""


def count_blocks(words: int, bits: int) -> int:
    """Return how many blocks a memory takes."""
    return min(-(-bits // width) * -(-words // depth) for width, depth in BLOCKS)


def values_kept(passes: Sequence[Phase], number: int, inputs: Iterable[Node]) -> list[Node]:
    """Return the values of an element that the memory before a pass keeps: inputs first, in their order."""
    wanted = {load for phase in passes[number:] for load in phase.loads}
    stored = (node for phase in passes[:number] for node in phase.stored)
    return [node for node in (*inputs, *stored) if node in wanted]


def choose_phases(
    simplified: Simplified, writable: Mapping[str, WritableTable], lanes: int, words: int
) -> tuple[Phase, ...]:
    """Return the passes of a program, with what is stored between them.

    Args:
        simplified: The program.
        writable: Tables behind the register port, by name.
        lanes: Elements of a beat.
        words: Beats that a memory between two passes holds.
    """
    plain = phases(simplified.program, streamed=True)
    nodes = list(walk(simplified.program.outputs.values()))
    inputs = [node for node in nodes if node.op == "input"]
    again = [node for node in nodes if sum(node in phase.rows for phase in plain) > 1]
    others = (phases(simplified.program, streamed=True, kept=[node]) for node in again)

    def cost(passes: Sequence[Phase]) -> tuple[int, int]:
        between = (values_kept(passes, number, inputs) for number in range(1, len(passes)))
        bits = [lanes * sum(shape(simplified.intervals[node])[0] for node in kept) for kept in between]
        looked_up = (node for phase in passes for node in phase.rows if node.op == "lut")
        tables = (table_for(node, simplified, writable) for node in looked_up)
        read = [count_blocks(1 << table.address, table.width) for table in tables if table.in_memory]
        return sum(count_blocks(words, width) for width in bits) + lanes * sum(read), sum(len(p.rows) for p in passes)

    return min([plain, *others], key=cost)
