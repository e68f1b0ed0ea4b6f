"""Attention whose weights are another function of the scores than the softmax, written out: that of some method."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from softq.forms import Form, Match, refuse
from softq.forms.matching.exponentials import read_number
from softq.forms.matching.mask_sources import Source
from softq.forms.matching.masks import find_mask, keeps_shape
from softq.forms.matching.operators import find_refusal
from softq.forms.matching.value_sets import BITS, find_values
from softq.forms.substitutes.evaluation import export_region
from softq.forms.substitutes.recognition import Masks, Recognised, recognise
from softq.forms.substitutes.regions import OPERATORS, Region, are_scores, are_weights, find_regions, is_computed_from
from softq.graph.facts import Facts
from softq.graph.queries import is_constant, is_op, operand, operator_label

_CHANGING = {"Log", "Shape", "ReduceSum", "ReduceMax", "ReduceMean", "ReduceMin", "TopK"}
"""Operators without one of which a softmax has nothing in front of it but factors and addends."""

_ROUNDED = "where y is too small to change 1, the graph's Log(1 + y) is 0, and the method's is not"
_GUARDED = "a row that the mask hides is made zeros, and so is a row with a NaN"


def match(node: ir.Node, facts: Facts) -> Match | None:
    """Recognise the last node of the function: its result goes into the product with the values, or a multiple does."""
    if not is_op(node, *OPERATORS) or len(node.outputs) != 1:
        return None
    if are_weights(node.outputs[0]):
        return _find(node, facts)
    multiple = _find_multiple(node.outputs[0])
    if multiple is None or not are_weights(multiple.outputs[0]) or _find(multiple, facts) is not None:
        return None
    return _find(node, facts)


def _find_multiple(value: ir.Value) -> ir.Node | None:
    """Return the only reader of a value, if it multiplies by one number."""
    readers = value.consumers()
    if value.is_graph_output() or len(readers) != 1 or not is_op(readers[0], "Mul", "Div"):
        return None
    return readers[0] if operand(readers[0], 0) is value and read_number(operand(readers[0], 1)) is not None else None


def _find(node: ir.Node, facts: Facts, *, changing: bool = False) -> Match | None:
    """Return the longest function that a method is: what is left in front of a shorter one is a part of it."""
    found: Match | None = None
    for region in find_regions(node.outputs[0], are_scores):
        if changing and not any(is_op(inner, *_CHANGING) for inner in region.nodes):
            continue
        function = None if _is_scaled_first(region) else export_region(region, facts)
        own = None if function is None else recognise(function, _find_masks(region.entry, facts), facts)
        if own is not None:
            found = _make_match(node, region, own, function is not None and function.swallows, facts)
    return found if found is not None or changing else _find_masked(node, facts)


def _find_masked(node: ir.Node, facts: Facts) -> Match | None:
    """Return the longest function that holds the mask of the scores inside, where none is in front."""

    def is_mask(value: ir.Value, entry: ir.Value) -> bool:
        shape = facts.shape(value)
        if shape is None or len(shape) == 0 or shape[-1] == 1 or is_computed_from(value, entry):
            return False
        return facts.dtype(value) == ir.DataType.BOOL or find_values(value, facts) == BITS

    found: Match | None = None
    for region in find_regions(node.outputs[0], are_scores, is_mask):
        mask, scores = region.mask, region.entry
        if mask is None or _is_scaled_first(region) or find_mask(scores, facts).kind != "none":
            continue
        function = export_region(region, facts)
        if function is None or not keeps_shape(facts.shape(scores), facts.shape(mask)):
            continue
        for counts_when in (True, False):
            own = recognise(function, "infinite", facts, counts_when)
            if own is not None:
                match = _make_match(node, region, own, function.swallows, facts)
                found = replace(match, mask=Source(mask, counts_when), zero_row=own.zeros, guarded=own.guarded)
    return found


def _make_match(node: ir.Node, region: Region, own: Recognised, swallows: bool, facts: Facts) -> Match:
    refusal = find_refusal(node, region.entry, facts)
    notes = [_ROUNDED] * swallows + [_GUARDED] * own.guarded
    return Match(
        operator_label(node), region.entry, node.outputs[0], -1, refuse(refusal), "; ".join(notes),
        function=own.function, nodes=region.nodes,
    )  # fmt: skip


def _is_scaled_first(region: Region) -> bool:
    """Whether a function begins by scaling or casting: that may as well be left to what is in front of it."""
    readers = [node for node in region.nodes if any(value is region.entry for value in node.inputs)]
    if len(readers) != 1 or operand(readers[0], 0) is not region.entry:
        return False
    return is_op(readers[0], "Cast", "Identity") or (
        is_op(readers[0], "Mul", "Div") and is_constant(operand(readers[0], 1))
    )


def _find_masks(scores: ir.Value, facts: Facts) -> Masks:
    mask = find_mask(scores, facts)
    if mask.kind == "none":
        return "none"
    return "infinite" if mask.kind != "unproven" and mask.masked_row == "nan" else "any"


def find_around(node: ir.Node, facts: Facts) -> Match | None:
    """Return the function that a softmax is together with what stands in front of it, None if it is the softmax alone.

    Only what depends on the scores or on the length of the row makes it another function: a factor is part of the
    scores.
    """
    if not is_op(node, "Softmax") or not are_weights(node.outputs[0]):
        return None
    return _find(node, facts, changing=True)


FORM = Form(
    "written-function",
    "Another function of scores as weights of attention, written out (for the method that is this function)",
    match,
    last=True,
)
