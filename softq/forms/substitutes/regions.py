"""Parts of a graph that are a function of one value, and where among them attention weights stand.

Attention weights stand behind the product of queries and keys, and before the product with the values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from softq.graph.queries import (
    constant_tensor,
    has_references,
    is_constant,
    is_op,
    operand,
    producer,
    subgraphs,
    walk_above,
)

MOST_NODES = 120
"""Nodes of the longest function that is looked at, constants included."""

_NUMBERS = {
    "Abs", "Add", "Cast", "CastLike", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "Identity", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Round",
    "Sigmoid", "Sign", "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu",
}  # fmt: skip
_CONDITIONS = {
    "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Where",
}  # fmt: skip
_ROWS = {
    "ArgMax", "ArgMin", "CumSum", "LogSoftmax", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax", "TopK",
}  # fmt: skip
_PLACES = {
    "Concat", "Constant", "ConstantOfShape", "Expand", "Gather", "GatherElements", "Range", "Reshape",
    "ScatterElements", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
ELEMENTWISE = frozenset(_NUMBERS | _CONDITIONS)
"""Operators that work element by element, operands of fewer elements repeated."""

OPERATORS = frozenset(_NUMBERS | _CONDITIONS | _ROWS | _PLACES)
"""Operators of which a function may be made; each computes its outputs from its inputs alone."""


@dataclass(frozen=True, eq=False)
class Region:
    """A function of one value.

    Attributes:
        entry: What it is a function of.
        result: What it gives.
        nodes: Its nodes, each behind those whose results it reads.
        shapes: Values outside, of which it reads the shape and nothing else.
        mask: A boolean outside, of which it reads the elements; None if it reads none.
    """

    entry: ir.Value
    result: ir.Value
    nodes: tuple[ir.Node, ...]
    shapes: tuple[ir.Value, ...]
    mask: ir.Value | None = None


MaskOf = Callable[[ir.Value, ir.Value], bool]
"""Whether a value may be what says of a function of another one which positions take part."""


def find_regions(
    result: ir.Value, begins: Callable[[ir.Value], bool], is_mask: MaskOf = lambda value, entry: False
) -> Iterator[Region]:
    """Yield the parts of a graph that make `result` of one value, the smallest first.

    Args:
        result: A value that a node computes.
        begins: Whether a part may begin with a value.
        is_mask: What may be read besides, one value per part.
    """
    above = list(walk_above(result, lambda node: _may_belong(node, result), 2 * MOST_NODES))
    for entry in above[1:]:
        if constant_tensor(entry) is not None or not begins(entry):
            continue
        found = _cut(result, entry, is_mask)
        if found is not None and _is_closed(found):
            yield found


def _may_belong(node: ir.Node, result: ir.Value) -> bool:
    known = is_op(node, *OPERATORS) and node.graph is result.graph and not has_references(node)
    return known and not any(True for _ in subgraphs(node))


def _cut(result: ir.Value, entry: ir.Value, is_mask: MaskOf) -> Region | None:
    """Return what lies between a value and the result, None if something else leads there as well."""
    nodes, shapes, masks = dict[ir.Node, None](), list[ir.Value](), list[ir.Value]()

    def reaches(value: ir.Value | None) -> bool:
        """Note the nodes that a value is computed by; return whether they start from the entry and constants alone."""
        if value is None or value is entry:
            return True
        if is_mask(value, entry):
            masks.extend([value] if value not in masks else [])
            return len(masks) == 1
        if constant_tensor(value) is not None:
            return True
        node = value.producer()
        if node is None or not _may_belong(node, result) or len(nodes) > MOST_NODES:
            return False
        if node in nodes:
            return True
        if is_op(node, "Shape"):
            # Only the shape is read: what computes the value does not matter.
            shapes.extend(v for v in node.inputs if v is not None)
        elif not all(map(reaches, node.inputs)):
            return False
        nodes[node] = None
        return True

    if entry is result or not reaches(result):
        return None
    inside = {id(entry), *(id(out) for node in nodes for out in node.outputs)}
    outside = tuple(v for v in shapes if id(v) not in inside)
    return Region(entry, result, _order(nodes), outside, masks[0] if masks else None)


def _order(nodes: Collection[ir.Node]) -> tuple[ir.Node, ...]:
    """Return nodes, each behind those whose results it reads, if only for the shape."""
    found = dict[ir.Node, None]()

    def place(node: ir.Node | None) -> None:
        if node is not None and node in nodes and node not in found:
            for value in node.inputs:
                place(None if value is None else value.producer())
            found[node] = None

    for node in nodes:
        place(node)
    return tuple(found)


def _is_closed(region: Region) -> bool:
    """Whether nothing but the function reads what it makes of the entry on the way to its result."""
    inside, made = set(region.nodes), {id(region.entry)}
    for node in region.nodes:
        # A shape depends on no element: whoever else reads it may go on doing so.
        if is_op(node, "Shape") or not any(id(v) in made for v in node.inputs):
            continue
        made |= {id(out) for out in node.outputs}
        for out in node.outputs:
            if out is region.result:
                continue
            if out.is_graph_output() or any(reader not in inside for reader in out.consumers()):
                return False
    readers = list(region.result.consumers())
    return id(region.result) in made and not any(reader in inside for reader in readers)


_STEPS = 6
"""Nodes between the product of queries and keys and the function: a scale, a bias, a mask, casts."""


def are_scores(value: ir.Value | None) -> bool:
    """Return whether a value is a product of two run-time values, scaled, masked or cast since.

    An activation of a network of layers has a constant matrix on one side, and linear attention its function on
    queries and keys. What is done with something that is itself computed from the scores is part of a function of them.
    """
    for _ in range(_STEPS):
        node = producer(value, "MatMul", "Einsum", "Mul", "Div", "Add", "Sub", "Where", "Cast", "Identity")
        if node is None:
            return False
        if node.op_type in {"MatMul", "Einsum"}:
            return len(node.inputs) == 2 and not any(is_constant(operand(node, i)) for i in (0, 1))
        # Scores are the first operand of what is done to them, or the last that a Where chooses.
        place = 2 if node.op_type == "Where" and is_constant(operand(node, 1)) else _first(node)
        value = operand(node, place)
        others = [operand(node, i) for i in range(len(node.inputs)) if i != place]
        if value is None or any(is_computed_from(other, value) for other in others):
            return False
    return False


def _first(node: ir.Node) -> int:
    if node.op_type == "Where":
        return 1
    return int(len(node.inputs) > 1 and is_constant(operand(node, 0)))


def is_computed_from(value: ir.Value | None, scores: ir.Value) -> bool:
    """Return whether the elements of a value depend on the scores, as far as one function reaches."""
    above = () if value is None else walk_above(value, lambda node: not is_op(node, "Shape"), MOST_NODES)
    return any(found is scores for found in above)


def are_weights(value: ir.Value) -> bool:
    """Return whether a value is the left operand of a product with a run-time value, and of nothing else."""
    readers = value.consumers()
    if value.is_graph_output() or len(readers) != 1:
        return False
    (reader,) = readers
    sums = is_op(reader, "MatMul") or (is_op(reader, "Einsum") and _sums_rows(reader))
    return sums and operand(reader, 0) is value and not is_constant(operand(reader, 1))


def _sums_rows(einsum: ir.Node) -> bool:
    """Return whether an Einsum of two operands sums over the last axis of the first, and over nothing else of it."""
    attribute = einsum.attributes.get("equation")
    if attribute is None or attribute.is_ref() or len(einsum.inputs) != 2:
        return False
    terms, _, out = attribute.as_string().replace(" ", "").partition("->")
    first, _, second = terms.partition(",")
    if not first[-1:].isalpha() or not out or len(set(first)) != len(first):
        return False
    return first[-1] in second and first[-1] not in out and all(label in out for label in first[:-1])
