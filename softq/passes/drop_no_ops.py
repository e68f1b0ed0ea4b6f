"""Remove nodes whose result is their operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from softq.graph.edits import take_over
from softq.graph.queries import constant, graph_of, has_references, is_passthrough, operand
from softq.graph.view import Container
from softq.passes import NodePass, PassEntry


class DropNoOps(NodePass):
    """Removes Identity, inactive Dropout, casts to the same type, and moves that move nothing; CastLike becomes Cast.

    Equal dimensions are equal numbers or equal names: within a model one name is one number. A node between an input
    (or an initializer, or a value of a graph around) and an output stays, since both names are part of the interface.
    """

    def _rewrite(self, node: ir.Node, container: Container) -> bool:
        if has_references(node):
            return False
        settled = node.op_type == "CastLike" and _settle(node)
        rule, source = _RULES.get(node.op_type), operand(node, 0)
        dropped = rule is not None and source is not None and rule(node, container) and _bypass(node, source)
        return settled or dropped


def _bypass(node: ir.Node, source: ir.Value) -> bool:
    result = node.outputs[0]
    if result.is_graph_output():
        fixed = source.is_graph_input() or source.is_initializer() or source.is_graph_output()
        if fixed or source.graph is not result.graph:
            return False
        shape = source.shape
        take_over(result, source)
        source.shape = shape if shape is not None else source.shape
    else:
        if source.type is None:
            source.type = result.type
        if source.shape is None:
            source.shape = result.shape
        ir.convenience.replace_all_uses_with(result, source)
    graph_of(node).remove(node, safe=True)
    return True


def _settle(node: ir.Node) -> bool:
    like = node.inputs[1] if len(node.inputs) > 1 else None
    if like is None or like.dtype is None:
        return False
    kept = {name: node.attributes[name] for name in ("saturate", "round_mode") if name in node.attributes}
    node.op_type = "Cast"
    node.resize_inputs(1)
    node.attributes.clear()
    node.attributes["to"] = ir.AttrInt64("to", int(like.dtype))
    node.attributes.update(kept)
    return True


def _same_type(node: ir.Node, container: Container) -> bool:
    source = node.inputs[0]
    return source is not None and source.dtype is not None and int(source.dtype) == node.attributes.get_int("to", -1)


def _same_shape(node: ir.Node, container: Container) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or result.shape is None:
        return False
    ours, theirs = list(source.shape), list(result.shape)
    return ours == theirs and all(isinstance(dim, int) or dim.value is not None for dim in ours)


def _keeps_order(node: ir.Node, container: Container) -> bool:
    order = node.attributes.get_ints("perm", None)
    return order is not None and list(order) == sorted(order)


def _takes_all(node: ir.Node, container: Container) -> bool:
    """Return whether a Slice goes from 0 to past the end in steps of 1 on every axis that it names."""
    starts, ends, steps = (constant(operand(node, k), 64) for k in (1, 2, 4))
    if starts is None or ends is None or (operand(node, 4) is not None and steps is None):
        return False
    axes = constant(operand(node, 3), 64)
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if (starts != 0).any() or (steps is not None and (steps != 1).any()):
        return False
    if (ends >= (1 << 31) - 1).all():
        return True
    if shape is None or (operand(node, 3) is not None and axes is None):
        return False
    named = list(range(ends.size)) if axes is None else [int(axis) for axis in axes]
    sizes = [shape[axis] for axis in named]
    return all(isinstance(size, int) and end >= size for size, end in zip(sizes, ends.tolist(), strict=True))


def _neutral(node: ir.Node, container: Container) -> bool:
    """Return whether the second operand changes nothing: x * 1, x - 0, x and True, and so on, but not -0.0 + 0.0."""
    source, other = node.inputs[0], constant(operand(node, 1), 1024)
    if source is None or source.dtype is None or other is None or not _same_shape(node, container):
        return False
    if node.op_type == "Add" and not source.dtype.is_integer():
        return False
    return bool((other == _NEUTRAL[node.op_type]).all()) and not np.signbit(other).any()


_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "And": True, "Or": False}


_RULES: Mapping[str, Callable[[ir.Node, Container], bool]] = {
    **dict.fromkeys(("Identity", "Dropout"), lambda node, container: is_passthrough(node, container.opset)),
    "Cast": _same_type,
    **dict.fromkeys(("Reshape", "Expand", "Squeeze", "Flatten"), _same_shape),
    "Transpose": _keeps_order,
    "Slice": _takes_all,
    **dict.fromkeys(("Concat", "Max", "Min", "Sum", "Mean"), lambda node, container: len(node.inputs) == 1),
    **dict.fromkeys(_NEUTRAL, _neutral),
}


PASS = PassEntry("drop-no-ops", DropNoOps, "Remove nodes whose result is their operand")
