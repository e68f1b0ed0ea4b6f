"""The one form that the passes behind `normalize` meet, and how a softmax is brought to it.

It is a softmax over the last axis of float32, float16 or bfloat16 scores, its mask beside it and nothing idle behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.guards import look_behind
from softq.graph.edits import remove_if_unused, take_over
from softq.graph.patterns import match
from softq.graph.queries import graph_of, is_op, operand
from softq.graph.rewriter import Rewriter
from softq.site import MaskedRow, Site

CANONICAL_KEY = "softq.canonical"
"""Key under which `normalize` leaves a `Canonical` in the meta of each standard `Softmax` that is to be replaced."""


@dataclass(frozen=True)
class Mask:
    """A boolean tensor, broadcastable to the scores, that says which positions take part.

    Attributes:
        condition: The boolean value in the graph.
        valid_when: The value of `condition` at positions that take part.
        total: Whether some position takes part in every row: rows that were masked throughout are not masked.
    """

    condition: ir.Value
    valid_when: bool
    total: bool = False


@dataclass(frozen=True)
class Canonical:
    """What a canonical softmax node stands for.

    Attributes:
        site: The site as `locate` found it.
        scores: Scores with the row on the last axis: the node's input, or the same without the mask if it was lifted.
        mask: The lifted mask; None where the mask (if any) is still part of the scores.
        probabilities: The value that consumers read: the node's output, or the output of the guard behind it, which
            is then subsumed by `nan_becomes_zero`.
        nan_becomes_zero: Whether the original turns the NaN rows of its softmax to zeros (a lifted guard).
        zero_rows: The condition, one boolean per row, of a Where behind `probabilities` that makes rows zeros.
        whole: Whether it stands for more than the node: for all between `scores` and the node's output.
    """

    site: Site
    scores: ir.Value
    mask: Mask | None
    probabilities: ir.Value
    nan_becomes_zero: bool
    zero_rows: ir.Value | None = None
    whole: bool = False


def scores_of(softmax: ir.Node) -> ir.Value:
    """Return what a softmax is taken of."""
    scores = operand(softmax, 0)
    assert scores is not None, "a softmax has an input"
    return scores


def leaves_scores(row: MaskedRow) -> bool:
    """Return whether a lifted mask is given to the method.

    Under a finite mask a fully masked row keeps weights (uniform, or those of its scores): there the mask stays in the
    scores, where it is far enough below to get the weight zero in every other row.
    """
    return row in ("nan", "zero")


def unflatten(rewriter: Rewriter, node: ir.Node) -> None:
    """Undo Flatten - Softmax - Reshape over the last axis: so raising writes a softmax whose rank it cannot see."""
    weights, readers = node.outputs[0], node.outputs[0].consumers()
    reshape = readers[0] if len(readers) == 1 and is_op(readers[0], "Reshape") else None
    result = None if reshape is None else reshape.outputs[0]
    found = match(result, "Reshape(w := Softmax(flat := Flatten(scores)), shape := Shape(scores))")
    if found is None or reshape is None or result is None or found["w"] is not weights or weights.is_graph_output():
        return
    flatten, shape, scores = found["flat"].producer(), found["shape"].producer(), found["scores"]
    assert flatten is not None and shape is not None, "the pattern has them"  # noqa: PT018
    cut, known = flatten.attributes.get_int("axis", 1), rewriter.facts.shape(scores)
    if cut != -1 and (known is None or cut != len(known) - 1):
        return
    node.replace_input_with(0, scores)
    kind, dims = result.type or scores.type, result.shape or scores.shape
    take_over(result, weights)
    weights.type, weights.shape = kind, dims
    graph_of(node).remove(reshape, safe=True)
    remove_if_unused(flatten, shape)
    rewriter.modified = True


def bypass(rewriter: Rewriter, node: ir.Node) -> None:
    """Take out what stands behind a softmax and only hands its result on."""
    for passed in look_behind(node.outputs[0], rewriter.facts).passed:
        source = passed.inputs[0]
        assert source is not None, "a node that was looked through has an input"
        passed.outputs[0].replace_all_uses_with(source)
        graph_of(passed).remove(passed, safe=True)
        rewriter.modified = True


def move_axis_last(rewriter: Rewriter, node: ir.Node, axis: int) -> None:
    """Put a Transpose on either side of a softmax so that its axis is the last."""
    scores, weights = scores_of(node), node.outputs[0]
    shape = rewriter.facts.shape(scores)
    shape = rewriter.facts.shape(weights) if shape is None else shape
    assert shape is not None, "without a known rank only the last axis is accepted"
    order = list(range(len(shape)))
    order[axis], order[-1] = order[-1], order[axis]
    name = weights.name or "softmax"
    before = ir.node("Transpose", [scores], {"perm": order}, name=rewriter.fresh(f"{name}/to_last_axis"))
    behind = ir.node("Transpose", [weights], {"perm": order}, name=rewriter.fresh(f"{name}/from_last_axis"))
    take_over(weights, behind.outputs[0], except_by=behind)
    weights.name = rewriter.fresh(f"{name}_last_axis")
    last = ir.Shape([shape[i] for i in order])
    before.outputs[0].name, before.outputs[0].type = rewriter.fresh(f"{name}_scores"), scores.type or weights.type
    if weights.type is not None:
        before.outputs[0].shape, weights.shape = last, last.copy()
    node.replace_input_with(0, before.outputs[0])
    graph_of(node).insert_before(node, before)
    graph_of(node).insert_after(node, behind)
    rewriter.modified = True


def set_axis(rewriter: Rewriter, node: ir.Node) -> None:
    """Write the last axis as -1."""
    attribute = node.attributes.get("axis")
    if attribute is None or attribute.is_ref() or attribute.as_int() != -1:
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
        rewriter.modified = True


def narrow(rewriter: Rewriter, node: ir.Node) -> None:
    """Compute a softmax of double scores, over its last axis, in float32.

    The maximum is subtracted before: masks are written as numbers far below float32's least, and large scores would
    lose the digits in which they differ.
    """
    scores, weights = scores_of(node), node.outputs[0]
    shape = rewriter.facts.shape(scores)
    base, double, single = weights.name or "softmax", ir.DataType.DOUBLE, ir.DataType.FLOAT
    row = None if shape is None else (*shape[:-1], 1)
    axes = rewriter.add_ints(node, [-1], f"{base}_axes")
    maximum = rewriter.add(node, "ReduceMax", [scores, axes], f"{base}_max", double, row)
    distance = rewriter.add(node, "Sub", [scores, maximum], f"{base}_distance", double, shape)
    narrowed = rewriter.add(node, "Cast", [distance], f"{base}_float32", single, shape, to=int(single))
    node.replace_input_with(0, narrowed)
    back = ir.node("Cast", [weights], {"to": int(double)}, name=rewriter.fresh(f"{base}/double"))
    take_over(weights, back.outputs[0], except_by=back)
    weights.name = rewriter.fresh(f"{base}_in_float32")
    back.outputs[0].type, weights.type = ir.TensorType(double), ir.TensorType(single)
    graph_of(node).insert_after(node, back)
    rewriter.modified = True
