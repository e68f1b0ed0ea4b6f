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


def plan_memory(program: Program) -> Memory:
    """Return the plan of a program all of whose sizes are known.

    Raises:
        RefusalError: it needs more than positions of 32 bits reach.
    """
    slots = [int(size) for size in program.slots if isinstance(size, int)]
    spans = [Span(size, *life) for size, life in zip(slots, program.lives, strict=True)]
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
    offsets, of_scratch = plan.offsets[: len(slots)], plan.offsets[len(slots) :]
    size = max(plan.bytes, ALIGNMENT)  # C has no empty arrays.
    alive = plan.alive + (0,) * (len(program.steps) - len(plan.alive))
    return Memory(offsets, dict(zip(scratch, of_scratch, strict=True)), size, plan.least, alive)
