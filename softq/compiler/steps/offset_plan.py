"""Where each tensor of a model with fixed shapes lies in one block of memory, which tensors share in turn.

Finding the least block is NP-hard (dynamic storage allocation); the greatest number of bytes alive at once is a lower
bound. Tensors are placed one after the other at the lowest place that is free while they live, the largest first, and
the order is then improved as long as that is above the bound, by moving tensors that lie at the top forward.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 16
_TRIES = 3000
_SEED = 0


@dataclass(frozen=True)
class Span:
    """A tensor's bytes and the steps during which they are needed.

    Attributes:
        bytes: Its size.
        first: The first step that needs it.
        last: The last one.
    """

    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class OffsetPlan:
    """Where tensors lie.

    Attributes:
        offsets: The place of each in bytes, multiples of `ALIGNMENT`.
        bytes: Size of the whole block.
        alive: Bytes that each step needs, up to the last one that needs any.
    """

    offsets: tuple[int, ...]
    bytes: int
    alive: tuple[int, ...]

    @property
    def least(self) -> int:
        """Lower bound of the block: the most that is alive at one step."""
        return max(self.alive, default=0)


def plan_offsets(spans: Sequence[Span], alignment: int = ALIGNMENT) -> OffsetPlan:
    """Return where tensors lie; the same for the same tensors."""
    sizes = [-(-span.bytes // alignment) * alignment for span in spans]
    steps = range(max((span.last for span in spans), default=-1) + 1)
    alive = tuple(sum(s for s, span in zip(sizes, spans, strict=True) if span.first <= at <= span.last) for at in steps)
    least = max(alive, default=0)
    rivals = [[j for j, other in enumerate(spans) if j != i and other.first <= span.last and span.first <= other.last]
              for i, span in enumerate(spans)]  # fmt: skip
    orders = [
        sorted(range(len(spans)), key=lambda i: (-sizes[i], spans[i].first)),
        sorted(range(len(spans)), key=lambda i: (spans[i].first - spans[i].last, -sizes[i])),
        sorted(range(len(spans)), key=lambda i: (spans[i].first, -sizes[i])),
    ]
    best = min((_place(order, sizes, rivals) for order in orders), key=lambda found: found[0])
    order = min(orders, key=lambda order: _place(order, sizes, rivals)[0])
    chance = random.Random(_SEED)
    for _ in range(_TRIES if spans else 0):
        if best[0] == least:
            break
        top = [i for i in order if best[1][i] + sizes[i] == best[0]]
        moved = chance.choice(top if chance.random() < 0.5 else order)
        changed = [i for i in order if i != moved]
        changed.insert(chance.randrange(order.index(moved) + 1), moved)
        found = _place(changed, sizes, rivals)
        if found[0] <= best[0]:
            best, order = found, changed
    return OffsetPlan(tuple(best[1]), best[0], alive)


def _place(order: Sequence[int], sizes: Sequence[int], rivals: Sequence[Sequence[int]]) -> tuple[int, list[int]]:
    """Return the size of the block and the offsets if tensors are placed in this order."""
    offsets = [-1] * len(sizes)
    for index in order:
        at = 0
        for low, high in sorted((offsets[j], offsets[j] + sizes[j]) for j in rivals[index] if offsets[j] >= 0):
            if at + sizes[index] <= low:
                break
            at = max(at, high)
        offsets[index] = at
    return max((at + size for at, size in zip(offsets, sizes, strict=True)), default=0), offsets
