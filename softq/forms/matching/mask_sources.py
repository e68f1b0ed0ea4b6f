"""Tensors that mask scores: which they are, and what else is in them."""

from __future__ import annotations

import math

import onnx_ir as ir

from softq.forms.matching.facts import Facts
from softq.forms.matching.mask_lifts import Source
from softq.forms.matching.value_sets import MASKED, Levels, levels
from softq.graph.queries import MOVES_ONLY, operand, producer

_MINUS_INFINITY = Levels((-math.inf,), True)
_ZERO_OR_MINUS_INFINITY = Levels((-math.inf, 0.0), True)


def is_declared(value: ir.Value, facts: Facts) -> bool:
    """Whether the user says of a value, or of what it was moved and cast from, that it is a mask."""
    while value.graph is None or value.name not in facts.assumed.masks or value.graph is not facts.view.model.graph:
        node = value.producer()
        above = None if node is None or node.domain else operand(node, 0)
        if node is None or above is None or node.op_type not in MOVES_ONLY - {"Concat"} | {"Identity", "Cast"}:
            return False
        value = above
    return bool(facts.assumed.masks)


def parts(addend: ir.Value, facts: Facts) -> list[tuple[Source, ir.Value]]:
    """Return mask and bias of an addend that is both."""
    node = producer(addend, "Where", "Add")
    if node is None:
        return []
    if node.op_type == "Where":
        condition, yes, no = (operand(node, i) for i in range(3))
        if condition is None or yes is None or no is None:
            return []
        sides = [(Source(condition, True), yes)] * (levels(no, facts) == _MINUS_INFINITY)
        return sides + [(Source(condition, False), no)] * (levels(yes, facts) == _MINUS_INFINITY)
    first, second = operand(node, 0), operand(node, 1)
    if first is None or second is None:
        return []
    pairs = ((first, second), (second, first))
    return [(Source(mask, None), bias) for mask, bias in pairs if levels(mask, facts) == _ZERO_OR_MINUS_INFINITY]


def source_in(addend: ir.Value, facts: Facts) -> Source:
    """Return the condition that an addend is made of, or the addend itself."""
    node = addend.producer()
    if node is not None and node.domain == "" and node.op_type == "Where":
        condition, yes = operand(node, 0), levels(operand(node, 1), facts)
        no = levels(operand(node, 2), facts)
        if condition is not None and yes is not None and no is not None and (yes.values == (0,)) != (no.values == (0,)):
            return Source(condition, yes.values == (0,))
    return Source(addend, None)


def is_far_below(value: ir.Value, facts: Facts) -> bool:
    """Whether a value is the least score, less a number so great that nothing is left of its exponential."""
    node = producer(value, "Add", "Sub")
    if node is None:
        return False
    for index in (0, 1) if node.op_type == "Add" else (0,):
        found = levels(operand(node, 1 - index), facts)
        least = producer(operand(node, index), "ReduceMin") is not None
        if found is not None and least and (found.low if node.op_type == "Sub" else -found.values[-1]) >= -MASKED:
            return True
    return False
