"""Where row values stand that a later pass needs: in an output row that is not written yet, else in scratch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from softq.codegen.common.patterns import output_type
from softq.rowprog.phases import Phase
from softq.rowprog.program import Node, Program
from softq.rowprog.types import DType, Kind


@dataclass(frozen=True)
class StoredRow:
    """A row of memory for stored values.

    Attributes:
        output: Name of the output row, or None for scratch.
        slot: Number of the scratch row.
        dtype: What the memory holds; integers of 32 bits and fewer stand in a row of f32 by their bits.
    """

    output: str | None
    slot: int
    dtype: DType


def place_stored_rows(
    program: Program, passes: Sequence[Phase], nibbles: Collection[str] = ()
) -> Mapping[Node, StoredRow]:
    """Return where each stored value stands; rows of nibbles hold nothing else."""
    busy: dict[StoredRow, int] = {}
    result: dict[Node, StoredRow] = {}
    written = {name: phase.number for phase in passes for name in phase.outputs}
    for phase in passes:
        for node in phase.stored:
            last = max(p.number for p in passes if node in p.loads)
            result[node] = next(
                place
                for place in _candidates(program, node, nibbles)
                # Within one pass a row is read before it is written.
                if busy.get(place, -1) <= phase.number and (place.output is None or written[place.output] >= last)
            )
            busy[result[node]] = last
    return result


def count_scratch_rows(found: Mapping[Node, StoredRow]) -> int:
    """Return the number of scratch rows, of 8 bytes per element each."""
    return max((place.slot + 1 for place in found.values() if place.output is None), default=0)


def _candidates(program: Program, node: Node, nibbles: Collection[str]) -> Iterator[StoredRow]:
    for name, value in program.outputs.items():
        held = output_type(program, name)
        if (
            value.kind is Kind.ROW
            and name not in nibbles
            and (held is node.dtype or (held is DType.F32 and node.dtype.bits <= 32))
        ):
            yield StoredRow(name, 0, held)
    slot = 0
    while True:
        yield StoredRow(None, slot, DType.U64)
        slot += 1
