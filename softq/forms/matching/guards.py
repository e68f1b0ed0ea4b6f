"""What stands behind a softmax to catch rows of NaN, and the operators that only hand its result on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from softq.forms.matching.facts import Facts
from softq.forms.matching.value_sets import ZERO, Levels, levels
from softq.graph.queries import constant, is_op, is_passthrough, operand, producer
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
        zero_rows: The condition of a `row-where`, one boolean a row.
    """

    weights: ir.Value
    guard: str
    passed: tuple[ir.Node, ...]
    zero_rows: ir.Value | None = None


def look_behind(value: ir.Value, facts: Facts) -> Behind:
    """Follow `value` through every Identity, inference Dropout and guard that is its only reader."""
    guard, passed, zero_rows = "none", list[ir.Node](), None
    while True:
        found = _guard(value, facts)
        where = _row_guard(value, facts)
        readers = value.consumers()
        if guard == "none" and found is not None:
            value, guard = found, ISNAN_WHERE
        elif guard == "none" and where is not None:
            value, guard, zero_rows = where.outputs[0], ROW_WHERE, where.inputs[0]
        elif len(readers) == 1 and not value.is_graph_output() and _passes(readers[0], value, facts):
            passed.append(readers[0])
            value = readers[0].outputs[0]
        else:
            return Behind(value, guard, tuple(passed), zero_rows)


def masked_row(row: MaskedRow, guard: str) -> MaskedRow:
    """Return what consumers see of a fully masked row that the softmax itself makes `row`."""
    return "zero" if guard in {ISNAN_WHERE, ROW_WHERE} and row == "nan" else row


def _passes(node: ir.Node, value: ir.Value, facts: Facts) -> bool:
    # A reader in the body of an If may not run, and its result does not exist outside.
    same = node.graph is value.graph and node.inputs[0] is value and not node.outputs[0].is_graph_output()
    return same and is_passthrough(node, facts.view.container_of(node).opset)


def _guard(value: ir.Value, facts: Facts) -> ir.Value | None:
    """Return the output of the guard if it takes the place of `value` for all readers."""
    readers = value.consumers()
    if len(readers) != 2 or value.is_graph_output() or any(node.graph is not value.graph for node in readers):
        return None
    test = next((node for node in readers if is_op(node, "IsNaN")), None)
    where = next((node for node in readers if is_op(node, "Where")), None)
    if test is None or where is None:
        return None
    condition, zero, kept = test.outputs[0], 1, 2
    inverted = condition.consumers()
    if len(inverted) == 1 and is_op(inverted[0], "Not") and not condition.is_graph_output():
        condition, zero, kept = inverted[0].outputs[0], 2, 1
    if operand(where, 0) is not condition or operand(where, kept) is not value:
        return None
    if condition.is_graph_output() or len(condition.uses()) != 1 or levels(operand(where, zero), facts) != ZERO:
        return None
    shape, fill = facts.shape(value), facts.shape(operand(where, zero))
    # A zero with more axes than the weights would give the result another shape.
    if fill is not None and all(d == 1 for d in fill) and len(fill) <= (len(shape) if shape is not None else 0):
        return where.outputs[0]
    return where.outputs[0] if fill == () else None


def _row_guard(value: ir.Value, facts: Facts) -> ir.Node | None:
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
    hidden = _fully_masked(condition, value, facts) and levels(operand(where, 1), facts) == ZERO
    return where if hidden else None


def _only_reader(value: ir.Value) -> ir.Node | None:
    # Of what CastLike casts to, it reads the type alone.
    readers = [node for node, index in value.uses() if not (is_op(node, "CastLike") and index == 1)]
    return readers[0] if len(readers) == 1 and not value.is_graph_output() else None


def _fully_masked(condition: ir.Value | None, weights: ir.Value, facts: Facts) -> bool:
    """Whether `condition` is true for the rows in which all that is added to the scores is -inf, and for no other."""
    equal = producer(condition, "Equal")
    greatest = None if equal is None else producer(operand(equal, 0), "ReduceMax")
    if equal is None or greatest is None or levels(operand(equal, 1), facts) != _MINUS_INFINITY:
        return False
    axes = constant(operand(greatest, 1))
    if axes is None or axes.reshape(-1).tolist() != [-1] or not greatest.attributes.get_int("keepdims", 1):
        return False
    softmax = producer(_above(weights), "Softmax")
    scores = None if softmax is None else _above(operand(softmax, 0))
    addition = producer(scores, "Add")
    masks = [scores, *(addition.inputs if addition is not None else ())]
    return any(_above(mask) is _above(operand(greatest, 0)) for mask in masks if mask is not None)


def _above(value: ir.Value | None) -> ir.Value | None:
    """Return what reaches `value` through nodes that leave -inf and only -inf as -inf."""
    while (node := producer(value, "Identity", "Cast")) is not None:
        value = operand(node, 0)
    return value


_MINUS_INFINITY = Levels((-math.inf,), True)
