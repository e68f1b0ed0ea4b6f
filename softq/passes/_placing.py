"""Bringing a softmax to the last axis of float32, float16 or bfloat16 scores, with nothing idle behind it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from softq.forms.matching.guards import look_behind
from softq.graph.queries import is_op, operand, producer
from softq.graph.scribe import Scribe, give_place, scores_of


def unflatten(scribe: Scribe, node: ir.Node) -> None:
    """Undo Flatten - Softmax - Reshape over the last axis: so raising writes a softmax whose rank it cannot see."""
    flatten, readers = producer(scores_of(node), "Flatten"), node.outputs[0].uses()
    if flatten is None or len(readers) != 1 or node.outputs[0].is_graph_output():
        return
    reshape, _ = next(iter(readers))
    shape = producer(operand(reshape, 1), "Shape") if is_op(reshape, "Reshape") else None
    scores = operand(flatten, 0)
    if shape is None or scores is None or operand(shape, 0) is not scores:
        return
    cut, known = flatten.attributes.get_int("axis", 1), scribe.facts.shape(scores)
    if cut != -1 and (known is None or cut != len(known) - 1):
        return
    node.replace_input_with(0, scores)
    give_place(reshape.outputs[0], node.outputs[0])
    node.outputs[0].type = reshape.outputs[0].type or scores.type
    node.outputs[0].shape = reshape.outputs[0].shape or scores.shape
    assert node.graph is not None, "a node of a model belongs to a graph"
    node.graph.remove(reshape, safe=True)
    for dead in (flatten, shape):
        if not dead.outputs[0].uses() and not dead.outputs[0].is_graph_output() and dead.graph is not None:
            dead.graph.remove(dead, safe=True)
    scribe.modified = True


def bypass(scribe: Scribe, node: ir.Node) -> None:
    """Take out what stands behind a softmax and only hands its result on."""
    for passed in look_behind(node.outputs[0], scribe.facts).passed:
        source = passed.inputs[0]
        assert source is not None, "a node that was looked through has an input"
        assert passed.graph is not None, "a node of a model belongs to a graph"
        passed.outputs[0].replace_all_uses_with(source)
        passed.graph.remove(passed, safe=True)
        scribe.modified = True


def move_axis_last(scribe: Scribe, node: ir.Node, axis: int) -> None:
    """Put a Transpose on either side of a softmax so that its axis is the last."""
    scores, weights, graph = scores_of(node), node.outputs[0], node.graph
    shape = scribe.facts.shape(scores)
    shape = scribe.facts.shape(weights) if shape is None else shape
    assert shape is not None, "without a known rank only the last axis is accepted"
    assert graph is not None, "a node of a model belongs to a graph"
    order = list(range(len(shape)))
    order[axis], order[-1] = order[-1], order[axis]
    name = weights.name or "softmax"
    before = ir.node("Transpose", [scores], {"perm": order}, name=scribe.fresh(f"{name}/to_last_axis"))
    behind = ir.node("Transpose", [weights], {"perm": order}, name=scribe.fresh(f"{name}/from_last_axis"))
    back = behind.outputs[0]
    give_place(weights, back, scribe.fresh(f"{name}_last_axis"), skip=behind)
    back.type, back.shape = weights.type, weights.shape
    last = ir.Shape([shape[i] for i in order])
    before.outputs[0].name, before.outputs[0].type = scribe.fresh(f"{name}_scores"), scores.type or weights.type
    if weights.type is not None:
        before.outputs[0].shape, weights.shape = last, last.copy()
    node.replace_input_with(0, before.outputs[0])
    graph.insert_before(node, before)
    graph.insert_after(node, behind)
    scribe.modified = True


def set_axis(scribe: Scribe, node: ir.Node) -> None:
    """Write the last axis as -1."""
    attribute = node.attributes.get("axis")
    if attribute is None or attribute.is_ref() or attribute.as_int() != -1:
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
        scribe.modified = True


def narrow(scribe: Scribe, node: ir.Node) -> None:
    """Compute a softmax of double scores, over its last axis, in float32.

    The maximum is subtracted before: masks are written as numbers far below float32's least, and large scores would
    lose the digits in which they differ.
    """
    scores, weights, graph = scores_of(node), node.outputs[0], node.graph
    assert graph is not None, "a node of a model belongs to a graph"
    shape = scribe.facts.shape(scores)
    base, double = weights.name or "softmax", ir.DataType.DOUBLE
    row = None if shape is None else (*shape[:-1], 1)
    last = ir.node("Constant", [], {"value": ir.tensor(np.array([-1], np.int64))})
    axes = scribe.insert(node, last, f"{base}_axes", ir.DataType.INT64, (1,))
    greatest = scribe.insert(node, ir.node("ReduceMax", [scores, axes]), f"{base}_max", double, row)
    distance = scribe.insert(node, ir.node("Sub", [scores, greatest]), f"{base}_distance", double, shape)
    narrowed = ir.node("Cast", [distance], {"to": int(ir.DataType.FLOAT)})
    node.replace_input_with(0, scribe.insert(node, narrowed, f"{base}_float32", ir.DataType.FLOAT, shape))
    back = ir.node("Cast", [weights], {"to": int(double)}, name=scribe.fresh(f"{base}/double"))
    wide = back.outputs[0]
    give_place(weights, wide, scribe.fresh(f"{base}_in_float32"), skip=back)
    wide.type, wide.shape = ir.TensorType(double), weights.shape
    weights.type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_after(node, back)
    scribe.modified = True
