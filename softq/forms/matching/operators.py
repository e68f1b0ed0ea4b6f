"""What operators with a softmax have in common: the axis of Softmax and its like in each opset, types, refusals."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.forms import Match, refuse
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operand, operator_label
from softq.graph.signatures import refuse_unsupported

NEWEST_OPSET = 28
"""The newest opset whose Softmax these forms were written against; a later one may mean something else."""

FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


@dataclass(frozen=True)
class Axis:
    """The axis of a softmax.

    Attributes:
        axis: The reduced axis counted from the end; of several flattened ones the first. None if it is not known.
        flattened: Whether all axes from `axis` on are one row (below opset 13).
        refusal: Why the axis is not known; empty if it is.
    """

    axis: int | None
    flattened: bool = False
    refusal: str = ""


def find_axis(node: ir.Node, facts: Facts) -> Axis:
    """Return the axis of a Softmax, LogSoftmax or Hardmax node of the default domain.

    From opset 13 on `axis` (default -1) is reduced. Before, `axis` (default 1) is where the tensor is cut into rows:
    all axes from there on are flattened into one, which is the same only if `axis` is the last.
    """
    opset, name = facts.view.container_of(node).opset, node_label(node)
    if not 1 <= opset <= NEWEST_OPSET:
        return Axis(None, refusal=f"node {name} has opset {opset}; known are 1 to {NEWEST_OPSET}")
    try:
        attribute = facts.view.attribute(node, "axis")
    except LookupError as error:
        return Axis(None, refusal=f"the axis of node {name} is not known: {error.args[0]}")
    axis = (-1 if opset >= 13 else 1) if attribute is None else attribute.as_int()
    shape = facts.shape(operand(node, 0))
    shape = facts.shape(node.outputs[0]) if shape is None else shape
    rank = None if shape is None else len(shape)
    if rank is not None and not -rank <= axis < rank:
        return Axis(None, refusal=f"node {name} has axis {axis}, outside a tensor of rank {rank}")
    if axis == -1:
        return Axis(-1)
    if rank is None and opset < 13:
        why = f"below opset 13 axis {axis} makes all axes from there on one row, and the rank of the input is not known"
        return Axis(None, refusal=f"node {name} is undecidable: {why}")
    if rank is None:
        return Axis(None, refusal=f"node {name} reduces axis {axis} of a tensor of unknown rank")
    from_end = axis if axis < 0 else axis - rank
    return Axis(from_end, flattened=opset < 13 and from_end != -1)


def match_operator(node: ir.Node, facts: Facts) -> Match:
    """Return the match of a Softmax or LogSoftmax of the default domain, refused for what holds of every row."""
    scores, axis = operand(node, 0), find_axis(node, facts)
    refusal = f"node {node_label(node)} has no input" if scores is None else find_refusal(node, scores, facts)
    refusal = refusal or axis.refusal
    note = f"its row spans the last {-axis.axis} axes" if axis.flattened and axis.axis is not None else ""
    return Match(operator_label(node), scores, node.outputs[0], axis.axis, refuse(refusal), note)


def find_refusal(node: ir.Node, scores: ir.Value, facts: Facts) -> str:
    """Return why a softmax that ends in `node` cannot be converted, whatever its form; empty if it can."""
    dtype = facts.dtype(scores) or facts.dtype(node.outputs[0])
    container = facts.view.container_of(node)
    if refusal := refuse_unsupported(node, container.opset):
        return refusal
    if dtype is None and (container.function is None or container.function in facts.view.reached):
        return f"the element type of the scores of node {node_label(node)} is not known, also to inference"
    if dtype == ir.DataType.DOUBLE and not facts.assumed.float32:
        return f"node {node_label(node)} has double scores, and softq computes in float32 (allowed by --allow-float32)"
    if dtype is not None and dtype not in FLOATS | {ir.DataType.DOUBLE}:
        return f"node {node_label(node)} has {dtype.name.lower()} scores, which are no float type that softq knows"
    if container.opset != facts.view.containers[0].opset:
        return (
            f"node {node_label(node)} is in a function of opset {container.opset} in a model of opset "
            f"{facts.view.containers[0].opset}, which checkers reject"
        )
    return ""


def is_contrib(node: ir.Node, name: str, facts: Facts) -> bool:
    """Return whether a node is an operator of onnxruntime's own, and no function that the model brings."""
    identifier = node.op_identifier()
    return identifier[:2] == ("com.microsoft", name) and identifier not in facts.view.model.functions


def refuse_reference(node: ir.Node) -> str:
    """Return why attributes that are those of a function cannot be read; empty if there are none."""
    reference = next((attribute.name for attribute in node.attributes.values() if attribute.is_ref()), None)
    if reference is None:
        return ""
    why = "gets its value from the calls of the function that holds it"
    return f"not yet: the attribute {reference} of node {node_label(node)} {why}"


def count_keys(keys: int | str | None, past: ir.Value | None, rank: int, facts: Facts) -> int | str | None:
    """Return the number of keys with the past ones, None where it is not known.

    Args:
        keys: The number of new keys.
        past: The past keys [..., keys, width]; None if there are none.
        rank: Number of axes of `past`.
        facts: Shapes of the model.
    """
    if past is None:
        return keys
    shape = facts.shape(past)
    before = shape[-2] if shape is not None and len(shape) == rank else None
    return keys + before if isinstance(keys, int) and isinstance(before, int) else None
