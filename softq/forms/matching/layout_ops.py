"""Operators that hand elements on, and which axis of a value came from which axis of the value they started from."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import constant, is_float_cast, is_op, is_passthrough, operand

_MOST_PAIRS = 256
"""Pairs of values that are compared to learn whether two are the same."""

Layout = tuple[int | None, ...]
"""For each axis of a value which axis of its source runs there, counted from the end; None: nothing varies there."""


@dataclass(frozen=True, eq=False)
class Moved:
    """Where a value comes from.

    Attributes:
        source: The value above all nodes that only move or cast.
        path: These nodes, from the source down.
    """

    source: ir.Value
    path: tuple[ir.Node, ...]


def follow(
    value: ir.Value, facts: Facts, depth: int = 16, *, path: tuple[ir.Node, ...] = (), any_reshape: bool = False
) -> Moved:
    """Return the value above at most `depth` nodes that move, repeat, or cast between float types.

    Args:
        value: Where to begin.
        facts: Shapes of the model.
        depth: How many nodes to look through.
        path: Nodes below `value`, which end the path.
        any_reshape: Whether axes may be laid together or cut on the way, for elements that stand each for itself.
    """
    for _ in range(depth):
        node = value.producer()
        above = None if node is None else operand(node, 0)
        if node is None or above is None or above.graph is not value.graph or not _is_moving(node, facts, any_reshape):
            break
        path = (node, *path)
        value = above
    return Moved(value, path)


def _is_moving(node: ir.Node, facts: Facts, any_reshape: bool) -> bool:
    if is_op(node, "Cast"):
        return is_float_cast(node)
    if is_op(node, "Reshape") and not any_reshape:
        before, after = facts.shape(operand(node, 0)), facts.shape(node.outputs[0])
        known = before is not None and after is not None and None not in (*before, *after)
        # Axes that are laid together or cut are others: what is behind is a source of its own.
        return not known or _move_through(tuple(range(-len(before or ()), 0)), node, facts) is not None
    if is_op(node, "Transpose", "Squeeze", "Unsqueeze", "Expand", "Reshape"):
        return True
    return is_passthrough(node, facts.view.container_of(node).opset)


def is_plain(path: tuple[ir.Node, ...]) -> bool:
    """Whether no axis is touched on the path."""
    return all(is_op(node, "Identity", "Dropout", "Cast") for node in path)


def own_layout(value: ir.Value, facts: Facts) -> Layout | None:
    """Return the layout of a value that is its own source; None without a known rank."""
    shape = facts.shape(value)
    return None if shape is None else tuple(range(-len(shape), 0))


def move_layout(layout: Layout | None, path: tuple[ir.Node, ...], facts: Facts) -> Layout | None:
    """Return what a layout becomes along a path, None where that is not proved."""
    for node in path:
        if layout is None:
            return None
        layout = _move_through(layout, node, facts)
    return layout


def _move_through(layout: Layout, node: ir.Node, facts: Facts) -> Layout | None:
    rank = len(layout)
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        if perm is not None and perm.is_ref():
            return None
        order = list(range(rank))[::-1] if perm is None else list(perm.as_ints())
        return tuple(layout[i] for i in order) if sorted(order) == list(range(rank)) else None
    if node.op_type == "Unsqueeze":
        axes = read_axes(node, facts)
        if axes is None:
            return None
        wide = rank + len(axes)
        places = {a % wide for a in axes if -wide <= a < wide}
        rest = iter(layout)
        return tuple(None if i in places else next(rest) for i in range(wide)) if len(places) == len(axes) else None
    if node.op_type == "Squeeze":
        axes = read_axes(node, facts)
        if axes is None or any(not -rank <= a < rank for a in axes):
            return None
        gone = {a % rank for a in axes}
        return tuple(label for i, label in enumerate(layout) if i not in gone)
    if node.op_type == "Expand":
        shape = facts.shape(node.outputs[0])
        return None if shape is None or len(shape) < rank else (None,) * (len(shape) - rank) + layout
    if node.op_type == "Reshape":
        return _reshape(layout, node, facts)
    return layout


def _reshape(layout: Layout, node: ir.Node, facts: Facts) -> Layout | None:
    """Return the layout behind a Reshape that only adds or removes axes of length 1."""
    before, after = facts.shape(operand(node, 0)), facts.shape(node.outputs[0])
    if before is not None and after is not None:
        kept = [(label, d) for label, d in zip(layout, before, strict=True) if d != 1]
        lengths = [d for d in after if d != 1]
        # One length that is not known, or has another name, follows from the number of elements.
        open_ones = sum(d is None or d != there for (_, d), there in zip(kept, lengths, strict=False))
        if len(kept) == len(lengths) and open_ones <= 1:
            rest = iter(kept)
            return tuple(None if d == 1 else next(rest)[0] for d in after)
        if None not in before and None not in after:
            return None
    target = constant(operand(node, 1))
    if target is None:
        return None
    rest, found = list(layout), list[int | None]()
    # Sizes that are not known: each 0 copies the axis at its own place, and one -1 is what the others leave.
    for place, size in enumerate(int(n) for n in target.reshape(-1)):
        if size == 1:
            found.append(None)
        elif not rest or (size == 0 and len(rest) != len(layout) - place):
            return None
        elif size in {0, -1} or (before is not None and before[len(layout) - len(rest)] == size):
            found.append(rest.pop(0))
        else:
            return None
    return None if rest else tuple(found)


def read_axes(node: ir.Node, facts: Facts) -> tuple[int, ...] | None:
    """Return the axes that a Squeeze, an Unsqueeze or a reduction names, None if they are absent or not constant."""
    try:
        attribute = facts.view.attribute(node, "axes")
    except LookupError:
        return None
    if attribute is not None:
        return tuple(attribute.as_ints())
    tensor = constant(operand(node, 1))
    return None if tensor is None else tuple(int(a) for a in tensor.reshape(-1))


def are_same(first: ir.Value | None, second: ir.Value | None, depth: int = 4) -> bool:
    """Whether two values are one, or made by equal nodes of the same operands up to `depth` nodes up."""
    waiting, seen = deque([(first, second, depth)]), set[tuple[ir.Value | None, ir.Value | None]]()
    while waiting:
        one, other, left = waiting.popleft()
        if one is other or (one, other) in seen:
            continue
        seen.add((one, other))
        if left == 0 or len(seen) > _MOST_PAIRS or not _are_alike(one, other):
            return False
        nodes = [None if value is None else value.producer() for value in (one, other)]
        if nodes[0] is not None and nodes[1] is not None and not _makes_own(nodes[0]):
            waiting += ((a, b, left - 1) for a, b in zip(nodes[0].inputs, nodes[1].inputs, strict=True))
    return True


def _makes_own(node: ir.Node) -> bool:
    """Whether equal nodes need not give the same, or hold what they give."""
    return node.op_type.startswith("Random") or node.op_type in {"Bernoulli", "Multinomial", "Constant"}


def _are_alike(first: ir.Value | None, second: ir.Value | None) -> bool:
    """Whether two values are made by equal nodes."""
    left = None if first is None else first.producer()
    right = None if second is None else second.producer()
    if left is None or right is None or left.op_identifier() != right.op_identifier() or left.domain:
        return False
    if len(left.outputs) != 1:
        return False
    if _makes_own(left):
        one, other = constant(first), constant(second)
        return one is not None and other is not None and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return len(left.inputs) == len(right.inputs) and _attributes(left) == _attributes(right)


def _attributes(node: ir.Node) -> dict[str, str]:
    return {name: repr(attribute.value) + str(attribute.ref_attr_name) for name, attribute in node.attributes.items()}
