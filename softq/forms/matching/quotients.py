"""An exponential over its own sum, in all its spellings: what the forms that end in a Div or a Mul share."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.exponentials import Exponential, find_exponential, number, without_maximum
from softq.forms.matching.facts import Facts
from softq.forms.matching.layout_ops import Moved, follow, same
from softq.forms.matching.reductions import Reduced, fits, reduction_of
from softq.graph.queries import operand, producer

_SUMS = ("ReduceSum", "ReduceL1")

OVERFLOW = "its exponentials can overflow, and those of the softmax cannot"
"""What is worth telling where no maximum is subtracted."""

_NEGLIGIBLE = {ir.DataType.FLOAT: 2.0**-25, ir.DataType.FLOAT16: 2.0**-12, ir.DataType.BFLOAT16: 2.0**-9}
"""Half a unit in the last place of 1, and half of that: added to a sum of at least 1, it is rounded away."""


@dataclass(frozen=True, eq=False)
class Quotient:
    """A softmax written as a quotient.

    Attributes:
        exponential: What is above.
        scores: The exponent, without the maximum that is subtracted from it, where that is the same.
        axes: The axes of a row, counted from the end of the exponent; None if not known.
        added: A constant that is added to the sum.
        moved: The exponentials with the path on which they come.
        refusal: Why it is not to be converted; empty if it can.
        note: What is worth telling.
    """

    exponential: Exponential
    scores: ir.Value
    axes: tuple[int, ...] | None
    added: float
    moved: Moved
    refusal: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class _Sum:
    """What is below: a reduction, and what was done to it."""

    reduced: Reduced
    added: float
    least: float
    refusal: str


def find_quotient(
    above: ir.Value | None, below: ir.Value | None, result: ir.Value, facts: Facts, behind: tuple[ir.Node, ...] = ()
) -> Quotient | None:
    """Return the softmax that `above` over `below` is, None if it is something else.

    Args:
        above: The exponentials.
        below: Their sum.
        result: The quotient.
        facts: Shapes of the model.
        behind: Nodes that move the sum, or its inverse, before it meets the exponentials.
    """
    if above is None or below is None:
        return None
    moved = follow(above, facts)
    exponential = find_exponential(moved.source, facts)
    total = None if exponential is None else _find_sum(below, behind, facts)
    if exponential is None:
        return _reshaped(moved, below, behind, facts)
    if total is None or not same(moved.source, total.reduced.source):
        return None
    axes = total.reduced.axes
    if axes is None:
        why = "the axes that it sums over are not constant, or the rank of its scores is not known"
        return Quotient(exponential, exponential.exponent, None, 0.0, moved, why)
    if not fits(moved, total.reduced, result, facts):
        why = "it is not proved that every exponential meets the sum of its own row"
        return Quotient(exponential, exponential.exponent, axes, 0.0, moved, why)
    stripped = exponential.exponent
    if exponential.factor == 1 and exponential.mask is None:
        # Where some are struck out, the maximum is over all of them, and a NaN among them reaches the others.
        stripped = without_maximum(exponential.exponent, axes, facts)
    stable = stripped is not exponential.exponent
    added, refusal = total.added, exponential.refusal or total.refusal
    if stable and 0 <= added <= _NEGLIGIBLE.get(facts.dtype(total.reduced.node.outputs[0]) or ir.DataType.DOUBLE, 0):
        added = 0.0
    if not refusal and total.least > (1 if stable else 0):
        refusal = f"its sum is kept above {total.least:g}, and it is not proved that it is anyway"
    if not refusal and (added < 0 or (added and len(axes) != 1)):
        refusal = f"{added:g} is added to its sum"
    note = OVERFLOW if stripped is exponential.exponent and producer(stripped, "Sub") is None else ""
    if added or refusal:
        return Quotient(exponential, exponential.exponent, axes, added, moved, refusal, note)
    return Quotient(exponential, stripped, axes, 0.0, moved, note=note)


def _reshaped(moved: Moved, below: ir.Value, behind: tuple[ir.Node, ...], facts: Facts) -> Quotient | None:
    """Return the refusal of exponentials whose axes are laid together or cut before they are summed."""
    reshape = producer(moved.source, "Reshape")
    inside = None if reshape is None else operand(reshape, 0)
    exponential = None if inside is None else find_exponential(follow(inside, facts).source, facts)
    total = None if exponential is None else _find_sum(below, behind, facts)
    if exponential is None or total is None or not same(moved.source, total.reduced.source):
        return None
    why = "its exponentials are reshaped before they are summed"
    return Quotient(exponential, exponential.exponent, None, 0.0, moved, why)


def _find_sum(value: ir.Value, path: tuple[ir.Node, ...], facts: Facts) -> _Sum | None:
    """Look through what is done to a sum; the nodes on the way keep its layout or move it."""
    added, least, refusal = 0.0, 0.0, ""
    for _ in range(4):
        behind = follow(value, facts)
        path = (*behind.path, *path)
        reduced = reduction_of(behind.source, path, _SUMS, facts)
        if reduced is not None:
            return _Sum(reduced, added, least, refusal)
        node = producer(behind.source, "Add", "Max", "Clip")
        if node is None:
            return None
        inside, other = _sides(node, facts)
        if inside is None:
            return None
        known = number(other)
        rank, own = facts.shape(inside), facts.shape(other)
        if known is not None and own and (rank is None or len(own) > max(1, len(rank))):
            known = None  # a constant of more axes would change the layout
        if known is None or (node.op_type == "Clip" and operand(node, 2) is not None):
            refusal = refusal or f"{node.op_type} of node {node.name or behind.source.name!r} changes its sum"
        elif node.op_type == "Add":
            added += known
        else:
            least = max(least, known)
        if added and least:
            refusal = refusal or "its sum has a constant added and is kept above another"
        # In a layout, such a node counts as one that hands its elements on.
        path = (node, *path)
        value = inside
    return None


def _sides(node: ir.Node, facts: Facts) -> tuple[ir.Value | None, ir.Value | None]:
    """Return the operand that leads to a sum, and the other one."""
    pairs = [(0, 1)] if node.op_type == "Clip" else [(0, 1), (1, 0)]
    for index, other in pairs if len(node.inputs) <= 2 or node.op_type == "Clip" else []:
        value = operand(node, index)
        if value is not None and _leads_to_sum(value, facts):
            return value, operand(node, other)
    return None, None


def _leads_to_sum(value: ir.Value, facts: Facts) -> bool:
    for _ in range(4):
        source = follow(value, facts).source
        if producer(source, *_SUMS) is not None:
            return True
        node = producer(source, "Add", "Max", "Clip")
        inside = None if node is None else operand(node, 0)
        if inside is None:
            return False
        value = inside
    return False
