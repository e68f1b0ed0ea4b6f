"""The plan of a model's memory: where the tensors between its steps, and the scratch of these, lie in one block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softq.artifact.program import Program
from softq.compiler.steps.offset_plan import ALIGNMENT, Span, plan_offsets
from softq.errors import RefusalError

_LARGEST = (1 << 31) - 1
"""Bytes of memory whose positions are 32-bit integers."""


@dataclass(frozen=True)
class Memory:
    """A plan.

    Attributes:
        offsets: Where each slot lies, in bytes.
        scratch: Where the scratch of a step lies, by the step's number.
        bytes: Size of the whole block.
        least: The most bytes that are needed at once, which no plan can be below.
        alive: Bytes that each step needs.
    """

    offsets: Sequence[int]
    scratch: Mapping[int, int]
    bytes: int
    least: int
    alive: Sequence[int]


def plan_memory(program: Program, replaced: Mapping[str, Mapping[int, frozenset[int]]]) -> Memory:
    """Return the plan of a program all of whose sizes are known.

    Args:
        program: The steps.
        replaced: By kernel and by the position of a result among a step's tensors, the operands whose place it may
            take.

    Raises:
        RefusalError: it needs more than positions of 32 bits reach.
    """
    slots = [int(size) for size in program.slots if isinstance(size, int)]
    shared = share_places(program, slots, replaced)
    owners = sorted(set(shared))
    spans = [_span([i for i, owner in enumerate(shared) if owner == of], slots, program.lives) for of in owners]
    scratch: list[int] = []
    for position, step in enumerate(program.steps):
        needed = [math.prod(int(size) for size in program.tensors[at].shape if isinstance(size, int))
                  for at in step.tensors if program.tensors[at].place == "scratch"]  # fmt: skip
        if needed:
            scratch.append(position)
            spans.append(Span(max(needed), position, position))
    plan = plan_offsets(spans)
    if plan.bytes > _LARGEST:
        raise RefusalError(f"the model needs {plan.bytes} bytes of memory; a model in C has at most {_LARGEST}")
    of_owner, of_scratch = dict(zip(owners, plan.offsets, strict=False)), plan.offsets[len(owners) :]
    offsets = [of_owner[owner] for owner in shared]
    size = max(plan.bytes, ALIGNMENT)  # C has no empty arrays.
    alive = plan.alive + (0,) * (len(program.steps) - len(plan.alive))
    return Memory(offsets, dict(zip(scratch, of_scratch, strict=True)), size, max(plan.least, ALIGNMENT), alive)


def _span(together: Sequence[int], slots: Sequence[int], lives: Sequence[tuple[int, int]]) -> Span:
    """Return the life of tensors that are one after the other in one place."""
    return Span(slots[together[0]], min(lives[i][0] for i in together), max(lives[i][1] for i in together))


def share_places(
    program: Program, slots: Sequence[int], replaced: Mapping[str, Mapping[int, frozenset[int]]]
) -> list[int]:
    """Return for each slot the first one whose place it takes, or itself.

    A result takes the place of an operand of the same size that nobody reads after the step.

    Args:
        program: The steps.
        slots: Bytes of each slot.
        replaced: See `plan_memory`.
    """
    owner = list(range(len(slots)))
    gone: set[int] = set()
    for position, step in enumerate(program.steps):
        tensors = [program.tensors[at] for at in step.tensors]
        slot = [tensor.at if tensor.place == "arena" else -1 for tensor in tensors]
        for result, operands in sorted(replaced.get(step.kernel, {}).items()):
            made = slot[result]
            if made < 0 or program.lives[made][0] != position or slot.count(made) > 1:
                continue
            for operand in sorted(operands):
                read = slot[operand]
                everywhere = {at for at, there in enumerate(slot) if there == read} <= operands
                fits = read >= 0 and program.lives[read][1] == position and slots[read] == slots[made]
                if fits and everywhere and read not in gone:
                    owner[made] = owner[read]
                    gone.add(read)
                    break
    return owner
