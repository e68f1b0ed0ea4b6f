"""Reductions that are read beside what they reduce, as the sum in a quotient and the maximum in a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from softq.forms.matching.layout_ops import (
    Layout,
    Moved,
    are_same,
    follow,
    is_plain,
    move_layout,
    own_layout,
    read_axes,
)
from softq.graph.facts import Facts
from softq.graph.patterns import match
from softq.graph.queries import constant, is_op, operand, producer, walk_above

_MOST_BETWEEN = 128
"""Values between a reduction and what reads it."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reduction as it is read, behind nodes that move or repeat it.

    Attributes:
        node: The reduction.
        source: What is reduced, above nodes that move.
        axes: The axes of `source` that are reduced, counted from the end, ascending; None if they are not known.
        layout: The axes of `source` at the reader; None if not proved.
        spreads: Whether the result is repeated on the way, as by an Expand.
        simple: Whether nothing but the reduction, with its axes kept, changes the layout.
    """

    node: ir.Node
    source: ir.Value
    axes: tuple[int, ...] | None
    layout: Layout | None
    spreads: bool
    simple: bool


def find_reduction(moved: Moved, names: Sequence[str], facts: Facts) -> Reduced | None:
    """Return the reduction of one of the named kinds that is moved, as it is read at the end of the path."""
    node, path = producer(moved.source, *names), moved.path
    product = producer(moved.source, "MatMul", "Einsum") if node is None and "ReduceSum" in names else None
    written = None if product is None else _read_product(product, facts)
    node = node if written is None else product
    inside = None if node is None else operand(node, 0)
    if node is None or inside is None:
        return None
    before = follow(inside, facts)
    spreads = any(is_op(other, "Expand") for other in (*before.path, *path))
    layout = move_layout(own_layout(before.source, facts), before.path, facts)
    keeps = _read_flag(node, "keepdims", 1) if written is None else written[1]
    if layout is None and written is not None:
        return Reduced(node, before.source, None, None, spreads, simple=False)
    if layout is None:
        # Without a rank only the last axis means something, and only if nothing moves.
        simple = read_axes(node, facts) == (-1,) and keeps is True and is_plain(before.path) and is_plain(path)
        return Reduced(node, before.source, (-1,) if simple else None, None, spreads, simple)
    places = _find_places(node, len(layout), facts) if written is None else written[0]
    if places is None or keeps is None:
        return Reduced(node, before.source, None, None, spreads, simple=False)
    labels = sorted({label for place in places if (label := layout[place]) is not None})
    behind = tuple(
        None if place in places else label for place, label in enumerate(layout) if keeps or place not in places
    )
    simple = keeps and is_plain(before.path) and is_plain(path)
    return Reduced(node, before.source, tuple(labels), move_layout(behind, path, facts), spreads, simple)


def _read_product(node: ir.Node, facts: Facts) -> tuple[frozenset[int], bool] | None:
    """Return which axes a product sums over, and whether it keeps them; None if it does more than that."""
    first = operand(node, 0)
    shape = facts.shape(first)
    if shape is None:
        return None
    if is_op(node, "MatMul"):
        ones = constant(operand(node, 1))
        if ones is None or len(shape) < 2 or ones.shape not in {(shape[-1], 1), (shape[-1],)} or not np.all(ones == 1):
            return None
        return frozenset({len(shape) - 1}), ones.ndim == 2
    equation = node.attributes.get("equation")
    if equation is None or equation.is_ref() or len(node.inputs) != 1:
        return None
    terms, arrow, left = equation.as_string().replace(" ", "").partition("->")
    kept = [letter for letter in terms if letter in left]
    once = len(set(terms)) == len(terms) == len(shape)
    if not arrow or not once or list(left) != kept or not terms.isalpha():
        return None
    return frozenset(place for place, letter in enumerate(terms) if letter not in left), False


def _read_flag(node: ir.Node, name: str, default: int) -> bool | None:
    attribute = node.attributes.get(name)
    return bool(default) if attribute is None else None if attribute.is_ref() else bool(attribute.as_int())


def _find_places(node: ir.Node, rank: int, facts: Facts) -> frozenset[int] | None:
    absent = "axes" not in node.attributes and operand(node, 1) is None
    axes = read_axes(node, facts)
    if absent or axes == ():
        none = _read_flag(node, "noop_with_empty_axes", 0)
        return frozenset(() if none else range(rank)) if none is not None else None
    if axes is None or any(not -rank <= a < rank for a in axes):
        return None
    return frozenset(a % rank for a in axes)


def fits(beside: Moved, reduced: Reduced, result: ir.Value, facts: Facts) -> bool:
    """Whether each element beside a reduction meets the reduction of its own row.

    Args:
        beside: The elements, with the path on which they come.
        reduced: What they are combined with, element by element.
        result: What comes of it.
        facts: Shapes of the model.
    """
    if reduced.axes is None or not are_same(beside.source, reduced.source):
        return False
    if any(is_op(node, "Expand") for node in beside.path):
        return False
    if reduced.simple and is_plain(beside.path):
        return True
    mine = move_layout(own_layout(beside.source, facts), beside.path, facts)
    if mine is None or reduced.layout is None or len(reduced.layout) > len(mine):
        return False
    # Shorter layouts are padded at the front; an axis that is gone without a reduction had length 1.
    theirs = (None,) * (len(mine) - len(reduced.layout)) + reduced.layout
    shape = facts.shape(beside.source)
    assert shape is not None, "a layout has a rank"
    for label, other in zip(mine, theirs, strict=True):
        if other is not None and other != label:
            return False
        if other is None and label is not None and label not in reduced.axes and shape[label] != 1:
            return False
    return not reduced.spreads or _keeps_shape(beside, result, mine, reduced, facts)


def _keeps_shape(beside: Moved, result: ir.Value, mine: Layout, reduced: Reduced, facts: Facts) -> bool:
    """Whether a repeated reduction is proved not to repeat what it meets."""
    end = beside.path[-1].outputs[0] if beside.path else beside.source
    before, after = facts.shape(end), facts.shape(result)
    if before is not None and None not in before and before == after:
        return True
    shape = facts.shape(beside.source)
    assert shape is not None, "a layout has a rank"
    lengths = [None if label is None else shape[label] for label in mine]
    if all(isinstance(length, int) and length != 1 for length in lengths):
        # A longer repetition would not broadcast beside them.
        return True
    between = walk_above(result, lambda node: node is not reduced.node, _MOST_BETWEEN)
    expands = [node for value in between if (node := producer(value, "Expand")) is not None]
    return bool(expands) and all(_has_shape_of(node, beside, end) for node in expands)


def _has_shape_of(expand: ir.Node, beside: Moved, end: ir.Value) -> bool:
    """Whether an Expand goes to the shape of what stands beside it."""
    shape = producer(operand(expand, 1), "Shape")
    if shape is None or {"start", "end"} & shape.attributes.keys():
        return False
    candidates = [end]
    if is_plain(beside.path):
        # Elementwise operators with one operand, and the difference from a maximum, keep the shape.
        inner = [match(beside.source, pattern) for pattern in ("Exp(x)", "Exp(Sub(x, maximum))")]
        candidates += [beside.source, *(found["x"] for found in inner if found is not None)]
    return any(operand(shape, 0) is candidate for candidate in candidates)
