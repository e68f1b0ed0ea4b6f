"""What stands behind a softmax to catch rows of NaN, and the operators that only hand its result on."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from softq.passes._forms._facts import Facts
from softq.passes._forms._levels import ZERO, levels
from softq.passes._graph import is_op, is_passthrough, operand
from softq.site import MaskedRow

ISNAN_WHERE = "isnan-where"
"""`Where(IsNaN(p), 0, p)`, as torch exports scaled_dot_product_attention."""


@dataclass(frozen=True, eq=False)
class Behind:
    """What follows a softmax up to the value that its consumers read.

    Attributes:
        weights: The value that consumers read.
        guard: `isnan-where` or `none`.
        passed: Identity and inference Dropout nodes that were looked through, in order.
    """

    weights: ir.Value
    guard: str
    passed: tuple[ir.Node, ...]


def look_behind(value: ir.Value, facts: Facts) -> Behind:
    """Follow `value` through every Identity, inference Dropout and NaN guard that is its only reader."""
    guard, passed = "none", list[ir.Node]()
    while True:
        found = _guard(value, facts)
        readers = value.consumers()
        if guard == "none" and found is not None:
            value, guard = found, ISNAN_WHERE
        elif len(readers) == 1 and not value.is_graph_output() and _passes(readers[0], value, facts):
            passed.append(readers[0])
            value = readers[0].outputs[0]
        else:
            return Behind(value, guard, tuple(passed))


def masked_row(row: MaskedRow, guard: str) -> MaskedRow:
    """Return what consumers see of a fully masked row that the softmax itself makes `row`."""
    return "zero" if guard == ISNAN_WHERE and row == "nan" else row


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
