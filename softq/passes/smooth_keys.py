"""Subtract the mean key from all keys, so that their range is narrower where they are quantized.

A score is q . k_j; with k_j - mean(k) in the place of k_j every score of a row becomes less by the same q . mean(k),
which no softmax sees. Source: SageAttention (arXiv 2410.02367, section 4.2), which quantizes the keys after it.
"""

from __future__ import annotations

import contextlib

import numpy as np
import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import SAME_VALUES, constant, is_op, producer
from softq.graph.rewriter import Rewriter
from softq.passes import PassEntry
from softq.passes.rewriting.attention_regions import NotFusedError, Region, find_products
from softq.passes.rewriting.calls import ROW_KEY, RowCall

FAR_BELOW = -1e30
"""So low a number over masked scores that their weights are zero, whatever is subtracted from the others."""

_AXES_ARE_AN_INPUT = 18
"""The first version of the default domain whose ReduceMean takes axes as an input."""


_LAST_AXIS_IS_USUAL = 13
"""The first version of the default domain whose Softmax takes the last axis where it says none."""


class SmoothKeys(ir.passes.InPlacePass):
    """Subtracts from the right operand of each softmax's first product its mean over the columns.

    The softmax is an operator over the last axis, or a drop-in that has taken its place. A mask that is added, or that
    writes -inf or a number below -1e30 over scores, stays exact; so do factors that are the same for a whole row.
    Where something else stands between product and softmax (a cap by Tanh, a factor for each key) the keys stay.
    A key that is infinite or NaN, masked or not, makes every key so.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Smooth the keys; `modified` says whether there were any."""
        rewriter = Rewriter(model)
        for node in rewriter.facts.view.nodes:
            with contextlib.suppress(NotFusedError):
                if _is_softmax(node, rewriter.facts):
                    smooth(rewriter, find_products(node))
        return ir.passes.PassResult(model, rewriter.modified)


def smooth(rewriter: Rewriter, region: Region) -> None:
    """Smooth the keys of an attention, unless something else than a softmax would see it.

    Args:
        rewriter: Of the model.
        region: What `find_products` found.
    """
    if _is_softmax(region.call, rewriter.facts) and _keeps_rows(region, rewriter.facts):
        _smooth(rewriter, region)


def _is_softmax(node: ir.Node, facts: Facts) -> bool:
    """Say whether a node is a softmax over the last axis, or a drop-in in its place."""
    row = node.meta.get(ROW_KEY)
    if isinstance(row, RowCall):
        return row.drop_in
    if not is_op(node, "Softmax"):
        return False
    usual = -1 if facts.view.container_of(node).opset >= _LAST_AXIS_IS_USUAL else 1
    axis, shape = node.attributes.get_int("axis", usual), facts.shape(node.inputs[0])
    return axis == -1 or (shape is not None and axis == len(shape) - 1)


def _keeps_rows(region: Region, facts: Facts) -> bool:
    """Say whether a softmax does not see it if each row of the first product becomes less by a number."""
    if region.first is None:
        return False
    value = region.first.outputs[0]
    for node in region.elementwise[1:]:
        if not _keeps_differences(node, value, facts):
            return False
        value = node.outputs[0]
    return True


def _keeps_differences(node: ir.Node, value: ir.Value, facts: Facts) -> bool:
    """Say whether a row's shift by a number is one by a number, or none that is seen, behind a node."""
    if is_op(node, *SAME_VALUES, "Neg"):
        kind = facts.dtype(node.outputs[0])
        return kind is not None and kind.is_floating_point()
    others = [other for other in node.inputs if other is not value]
    if len(others) + 1 != len(node.inputs):
        return False
    if is_op(node, "Add", "Sub"):
        return True
    if is_op(node, "Mul") or (is_op(node, "Div") and node.inputs[0] is value):
        return _is_same_for_row(others[0], facts)
    if is_op(node, "Where") and node.inputs[0] is not value:
        written = constant(others[1])
        return written is not None and bool(np.all(written.astype(np.float64) <= FAR_BELOW))
    return False


def _is_same_for_row(factor: ir.Value | None, facts: Facts) -> bool:
    shape = facts.shape(factor)
    return shape is not None and (not shape or shape[-1] == 1)


def _smooth(rewriter: Rewriter, region: Region) -> None:
    product = region.first
    assert product is not None, "there is no obstacle"
    keys = product.inputs[1]
    dtype, shape = rewriter.facts.dtype(keys), rewriter.facts.shape(keys)
    if keys is None or shape is None or len(shape) < 2 or _is_smooth(keys):
        return
    name = keys.name or "keys"
    if rewriter.facts.view.container_of(product).opset >= _AXES_ARE_AN_INPUT:
        axes = rewriter.add_ints(product, [-1], f"{name}.axes")
        mean = rewriter.add(product, "ReduceMean", [keys, axes], f"{name}.mean", dtype, (*shape[:-1], 1))
    else:
        mean = rewriter.add(product, "ReduceMean", [keys], f"{name}.mean", dtype, (*shape[:-1], 1), axes=[-1])
    product.replace_input_with(1, rewriter.add(product, "Sub", [keys, mean], f"{name}.smooth", dtype, shape))


def _is_smooth(keys: ir.Value) -> bool:
    difference = producer(keys, "Sub")
    mean = None if difference is None else producer(difference.inputs[1], "ReduceMean")
    return difference is not None and mean is not None and mean.inputs[0] is difference.inputs[0]


PASS = PassEntry("smooth-keys", SmoothKeys, "Subtract the mean key from the keys, which no softmax sees")
