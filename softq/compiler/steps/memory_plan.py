"""Which memory each intermediate tensor gets: tensors that are never alive together share a slot of the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softq.artifact.program import Op, Size, evaluate


@dataclass
class Buffer:
    """An intermediate tensor's memory.

    Attributes:
        bytes: Its size.
        first: The step that writes it first.
        last: The last step that reads or writes it.
    """

    bytes: Size
    first: int
    last: int


def slots(buffers: Sequence[Buffer], dims: Sequence[str]) -> tuple[list[int], list[Size]]:
    """Return the slot of each buffer, and the size of each slot.

    Sizes are compared as expressions and, where they differ, for dimensions that stand for usual ones: the choice is
    about memory only, any choice is right.
    """
    usual = dict.fromkeys(dims, 128)
    order = sorted(range(len(buffers)), key=lambda i: buffers[i].first)
    placed = [-1] * len(buffers)
    sizes: list[Size] = []
    free: list[int] = []
    alive: list[tuple[int, int]] = []
    for index in order:
        buffer = buffers[index]
        free += [slot for last, slot in alive if last < buffer.first]
        alive = [(last, slot) for last, slot in alive if last >= buffer.first]
        slot = _best(buffer.bytes, free, sizes, usual)
        if slot is None:
            slot = len(sizes)
            sizes.append(buffer.bytes)
        else:
            free.remove(slot)
            sizes[slot] = _greater(sizes[slot], buffer.bytes)
        placed[index] = slot
        alive.append((buffer.last, slot))
    return placed, sizes


def _best(wanted: Size, free: Sequence[int], sizes: Sequence[Size], usual: Mapping[str, int]) -> int | None:
    same = [slot for slot in free if sizes[slot] == wanted]
    if same or not free:
        return same[0] if same else None
    need = evaluate(wanted, usual)
    # The one whose size is nearest: neither a small tensor in a large slot nor a small slot that grows.
    nearest = min(free, key=lambda slot: abs(evaluate(sizes[slot], usual) - need))
    there = evaluate(sizes[nearest], usual)
    return nearest if need <= 2 * there and there <= 4 * need else None


def _greater(a: Size, b: Size) -> Size:
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return Op("room", a, b)
