"""How masks are taken out of scores, as what finds them says it to the pass that does it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True, eq=False)
class Step:
    """What is done to scores after a mask was applied, and has to be done to them without it.

    Attributes:
        node: An operator that works element by element.
        index: Which operand the scores are.
        instead: What takes the place of the other operand; None if that stays.
    """

    node: ir.Node
    index: int
    instead: ir.Value | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """Where a mask says which positions take part.

    Attributes:
        value: A boolean value, or an addend whose elements are 0 where a position takes part and at most -1e4 else.
        valid_when: What the boolean is at positions that take part; None if `value` is an addend.
    """

    value: ir.Value
    valid_when: bool | None


@dataclass(frozen=True, eq=False)
class Lift:
    """How masks are taken out of the scores.

    Attributes:
        scores: What the innermost mask was applied to; None if the scores stay as they are, because what is under the
            mask is not proved to have their shape.
        steps: What was done to the scores since, in order.
        sources: The masks; a position takes part if all say so.
        total: Whether rows that are masked throughout count as not masked.
    """

    scores: ir.Value | None
    steps: tuple[Step, ...]
    sources: tuple[Source, ...]
    total: bool = False
