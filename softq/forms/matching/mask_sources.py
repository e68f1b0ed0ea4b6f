"""Tensors that mask scores: which they are, what else is in them, and how they are taken out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.value_sets import MASKED, MINUS_INFINITY, ValueSet, find_values
from softq.graph.facts import Facts
from softq.graph.patterns import match, matches
from softq.graph.queries import MOVES_ONLY, chain_above


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


_ZERO_OR_MINUS_INFINITY = ValueSet((-math.inf, 0.0), True)


def is_declared(value: ir.Value, facts: Facts) -> bool:
    """Whether the user says of a value, or of what it was moved and cast from, that it is a mask."""
    main, masks = facts.view.model.graph, facts.assumed.masks
    above = chain_above(value, *MOVES_ONLY - {"Concat"}, "Identity", "Cast")
    return any(moved.graph is main and moved.name in masks for moved in above)


def split_bias(addend: ir.Value, facts: Facts) -> list[tuple[Source, ir.Value]]:
    """Return mask and bias of an addend that is both."""
    chosen = (("Where(mask, bias, low)", True), ("Where(mask, low, bias)", False))
    return [
        (Source(found["mask"], valid_when), found["bias"])
        for pattern, valid_when in chosen
        for found in matches(addend, pattern)
        if find_values(found["low"], facts) == MINUS_INFINITY
    ] + [
        (Source(found["mask"], None), found["bias"])
        for found in matches(addend, "Add(mask, bias) | Add(bias, mask)")
        if find_values(found["mask"], facts) == _ZERO_OR_MINUS_INFINITY
    ]


def find_source(addend: ir.Value, facts: Facts) -> Source:
    """Return the condition that an addend is made of, or the addend itself."""
    found = match(addend, "Where(condition, yes, no)")
    yes, no = (None if found is None else find_values(found[name], facts) for name in ("yes", "no"))
    if found is not None and yes is not None and no is not None and (yes.values == (0,)) != (no.values == (0,)):
        return Source(found["condition"], yes.values == (0,))
    return Source(addend, None)


def is_far_below(value: ir.Value, facts: Facts) -> bool:
    """Whether a value is the least score, less a number so great that nothing is left of its exponential."""
    sums, differences = "Add(ReduceMin(x), c) | Add(c, ReduceMin(x))", "Sub(ReduceMin(x), c)"
    added = [find_values(found["c"], facts) for found in matches(value, sums)]
    taken = [find_values(found["c"], facts) for found in matches(value, differences)]
    far = [c for c in added if c is not None and c.values[-1] <= MASKED]
    return bool(far) or any(c is not None and c.low >= -MASKED for c in taken)
