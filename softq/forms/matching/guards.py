"""What stands behind a softmax to catch rows of NaN, and the operators that only hand its result on."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.value_sets import MINUS_INFINITY, ZERO, find_values
from softq.graph.facts import Facts
from softq.graph.patterns import match
from softq.graph.queries import chain_above, constant, is_op, is_passthrough, operand
from softq.site import MaskedRow

ISNAN_WHERE = "isnan-where"
"""`Where(IsNaN(p), 0, p)`, as torch exports scaled_dot_product_attention."""

ROW_WHERE = "row-where"
"""`Where(every key of the row is masked, 0, p)`, as in the body of ONNX's Attention; it stays where it is."""


@dataclass(frozen=True, eq=False)
class Behind:
    """What follows a softmax up to the value that its consumers read.

    Attributes:
        weights: The value that consumers read.
        guard: `isnan-where`, `row-where` or `none`.
        passed: Identity and inference Dropout nodes that were looked through, in order.
        zero_rows: The condition of a `row-where`, one boolean per row.
    """

    weights: ir.Value
    guard: str
    passed: tuple[ir.Node, ...]
    zero_rows: ir.Value | None = None


def look_behind(value: ir.Value, facts: Facts) -> Behind:
    """Follow `value` through every Identity, inference Dropout and guard that is its only reader."""
    guard, passed, zero_rows = "none", list[ir.Node](), None
    while True:
        found = _find_guard(value, facts)
        where = _find_row_guard(value, facts)
        readers = value.consumers()
        if guard == "none" and found is not None:
            value, guard = found, ISNAN_WHERE
        elif guard == "none" and where is not None:
            value, guard, zero_rows = where.outputs[0], ROW_WHERE, where.inputs[0]
        elif len(readers) == 1 and not value.is_graph_output() and _is_passed(readers[0], value, facts):
            passed.append(readers[0])
            value = readers[0].outputs[0]
        else:
            return Behind(value, guard, tuple(passed), zero_rows)


def guard_row(row: MaskedRow, guard: str) -> MaskedRow:
    """Return what consumers see of a fully masked row that the softmax itself makes `row`."""
    return "zero" if guard in {ISNAN_WHERE, ROW_WHERE} and row == "nan" else row


def _is_passed(node: ir.Node, value: ir.Value, facts: Facts) -> bool:
    # A reader in the body of an If may not run, and its result does not exist outside.
    same = node.graph is value.graph and node.inputs[0] is value and not node.outputs[0].is_graph_output()
    return same and is_passthrough(node, facts.view.container_of(node).opset)


def _find_guard(value: ir.Value, facts: Facts) -> ir.Value | None:
    """Return the output of the guard if it takes the place of `value` for all readers."""
    readers = value.consumers()
    where = next((node for node in readers if is_op(node, "Where")), None)
    if where is None or len(readers) != 2 or value.is_graph_output():
        return None
    found = match(where.outputs[0], "Where(c := IsNaN(p), zero, p) | Where(c := Not(d := IsNaN(p)), p, zero)")
    if found is None or found["p"] is not value or any(node.graph is not value.graph for node in readers):
        return None
    conditions = [found[name] for name in ("c", "d") if name in found]
    if any(c.is_graph_output() or len(c.uses()) != 1 for c in conditions) or find_values(found["zero"], facts) != ZERO:
        return None
    shape, fill = facts.shape(value), facts.shape(found["zero"])
    # A zero with more axes than the weights would give the result another shape.
    if fill is not None and all(d == 1 for d in fill) and len(fill) <= (len(shape) if shape is not None else 0):
        return where.outputs[0]
    return where.outputs[0] if fill == () else None


def _find_row_guard(value: ir.Value, facts: Facts) -> ir.Node | None:
    """Return the Where that makes fully masked rows of `value` zeros, if it is the only reader."""
    where = _only_reader(value)
    if where is not None and is_op(where, "Cast") and where.attributes.get_int("to", 0) == facts.dtype(value):
        # As ONNX's body of Attention has it, where the type of the softmax is that of the output.
        value = where.outputs[0]
        where = _only_reader(value)
    if where is None or not is_op(where, "Where") or where.graph is not value.graph or operand(where, 2) is not value:
        return None
    condition, weights = operand(where, 0), facts.shape(value)
    shape = facts.shape(condition)
    if shape is None or weights is None or len(shape) > len(weights) or shape[-1:] != (1,):
        return None
    fill = facts.shape(operand(where, 1))
    if fill is None or any(d != 1 for d in fill) or len(fill) > len(weights):
        return None
    hidden = _is_fully_masked(condition, value, facts) and find_values(operand(where, 1), facts) == ZERO
    return where if hidden else None


def _only_reader(value: ir.Value) -> ir.Node | None:
    # CastLike reads only the type of its second operand.
    readers = [node for node, index in value.uses() if not (is_op(node, "CastLike") and index == 1)]
    return readers[0] if len(readers) == 1 and not value.is_graph_output() else None


def _is_fully_masked(condition: ir.Value | None, weights: ir.Value, facts: Facts) -> bool:
    """Whether `condition` is true for the rows in which all that is added to the scores is -inf, and for no other."""
    found = match(condition, "Equal(greatest := ReduceMax(scores, axes), low)")
    greatest = None if found is None else found["greatest"].producer()
    if found is None or greatest is None or find_values(found["low"], facts) != MINUS_INFINITY:
        return False
    axes = constant(found["axes"])
    if axes is None or axes.reshape(-1).tolist() != [-1] or not greatest.attributes.get_int("keepdims", 1):
        return False
    softmax = match(_above(weights), "Softmax(scores)")
    scores = None if softmax is None else _above(softmax["scores"])
    terms = match(scores, "Add(a, b)")
    masks = [scores, *(terms.values() if terms is not None else ())]
    return any(_above(mask) is _above(found["scores"]) for mask in masks if mask is not None)


def _above(value: ir.Value) -> ir.Value:
    """Return what reaches `value` through nodes that leave -inf and only -inf as -inf."""
    *_, top = chain_above(value, "Identity", "Cast")
    return top
