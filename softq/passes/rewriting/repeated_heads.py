"""Heads of keys and values that are repeated in front of an attention, as where several queries share them."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import is_op, is_small, operand
from softq.graph.ranks import Dims

_PARTS_OF_SHAPES = 15
"""The first version of the default domain whose Shape gives single axes."""


@dataclass(frozen=True)
class Repeat:
    """Heads [batch, groups, 1, rows, width] that are repeated, behind their groups or flat [batch, heads, rows, width].

    Attributes:
        source: The heads.
        times: How often.
        heads: How many there are then.
        width: Of a head.
    """

    source: ir.Value
    times: int
    heads: int
    width: int


def find_repeat(node: ir.Node, facts: Facts) -> tuple[list[ir.Node], Repeat | None]:
    """Return the nodes that repeat heads, from the result upwards, and what they do where their shapes are computed.

    Args:
        node: The last of them: a Reshape.
        facts: Shapes of the model's values.

    Returns:
        Reshape, Expand and Unsqueeze with shapes that are constants, and None; or those between a Reshape and an Expand
        to computed shapes, and what both do; or nothing and None.
    """
    constant = _find_constant(node)
    return (constant, None) if constant else _find_computed(node, facts) or ([], None)


def _find_constant(node: ir.Node) -> list[ir.Node]:
    """Return Reshape, Expand and Unsqueeze, which repeat heads, if their shapes are constants."""
    graph = node.graph
    found: list[ir.Node] = []
    for name in ("Reshape", "Expand", "Unsqueeze"):
        shape = operand(node, 1)
        if not is_op(node, name) or shape is None or not is_small(shape):
            return []
        if found and any(user is not found[-1] for user in node.outputs[0].consumers()):
            return []
        found.append(node)
        source = node.inputs[0].producer() if node.inputs[0] is not None else None
        if name != "Unsqueeze":
            if source is None or source.graph is not graph:
                return []
            node = source
    return found


def _find_computed(reshape: ir.Node, facts: Facts) -> tuple[list[ir.Node], Repeat] | None:
    """Return Reshape and Expand, which repeat heads, where only the shapes of their results say so."""
    found = [reshape]
    while not is_op(found[-1], "Expand"):
        source = found[-1].inputs[0]
        node = None if source is None or len(source.uses()) != 1 else source.producer()
        if node is None or not is_op(node, "Identity", "Expand") or node.graph is not reshape.graph:
            return None
        found.append(node)
    source = found[-1].inputs[0]
    if source is None or not is_op(reshape, "Reshape") or facts.view.model.opset_imports[""] < _PARTS_OF_SHAPES:
        return None
    repeat = _repeated(source, *map(facts.shape, (source, found[-1].outputs[0], reshape.outputs[0])))
    return None if repeat is None else (found, repeat)


def _repeated(source: ir.Value, given: Dims | None, expanded: Dims | None, flat: Dims | None) -> Repeat | None:
    """Return how heads [batch, groups, 1, rows, width] are repeated, None if others are made of them."""
    if given is None or expanded is None or flat is None or (len(given), len(expanded), len(flat)) != (5, 5, 4):
        return None
    batch, groups, one, rows, width = given
    times = expanded[2]
    named = None not in given
    if not (isinstance(groups, int) and isinstance(times, int) and isinstance(width, int) and one == 1 and named):
        return None
    heads = groups * times
    same = expanded == (batch, groups, times, rows, width) and flat == (batch, heads, rows, width)
    return Repeat(source, times, heads, width) if same else None
