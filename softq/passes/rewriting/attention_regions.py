"""Finding what belongs to an attention of a converted model: everything between Q, K, V and the weighted values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from softq.graph.facts import Facts
from softq.graph.queries import SAME_VALUES, constant_tensor, is_op, is_small, node_label, operator_label, producer
from softq.passes.rewriting.repeated_heads import Repeat, find_repeat

ELEMENTWISE = SAME_VALUES | {"Add", "Clip", "Div", "Max", "Min", "Mul", "Neg", "Sub", "Tanh", "Where"}
"""What may stand between a product and the softmax, or between the softmax and its product with V."""

_BETWEEN = ELEMENTWISE | {"IsNaN"}
_CODES = frozenset({"QuantizeLinear", "DequantizeLinear"})
_CODED = _BETWEEN | _CODES | {"ReduceMax", "ReduceSum"}
"""What may read weights, as they are or as codes."""


class NotFusedError(Exception):
    """An attention stays as it is; the message says why."""


@dataclass
class Region:
    """Nodes that one function is made of.

    Attributes:
        call: The call of the row function.
        second: The product of the weights with V.
        first: The product of Q with K, or None where the scores are given.
        nodes: All of them; constants are not among them.
        elementwise: The product of Q with K and what is done to its elements, in this order.
        result: The one value that others read.
        repeats: For Expand and Reshape that repeat heads to a shape that is computed: what they do.
    """

    call: ir.Node
    second: ir.Node
    result: ir.Value
    first: ir.Node | None = None
    nodes: dict[ir.Node, None] = field(default_factory=dict)
    elementwise: list[ir.Node] = field(default_factory=list["ir.Node"])
    repeats: dict[ir.Node, Repeat] = field(default_factory=dict["ir.Node", "Repeat"])

    def owns(self, value: ir.Value) -> bool:
        """Say whether a value is read by nodes of the region only."""
        return not value.is_graph_output() and all(user in self.nodes for user in value.consumers())

    def inputs(self) -> Iterator[ir.Value]:
        """Yield each value that is read and computed elsewhere, once: Q, K and V or scores and V first."""
        firsts = [] if self.first is None else [self.behind_moves(value) for value in self.first.inputs]
        read = [*firsts, *(value for node in self.nodes for value in node.inputs)]
        shapes = {node.inputs[1] for node in self.repeats}
        yield from dict.fromkeys(
            v for v in read if v is not None and v.producer() not in self.nodes and v not in shapes
        )

    def behind_moves(self, value: ir.Value | None) -> ir.Value | None:
        """Return what a value is made of by nodes of the region that move elements, or make numbers of codes."""
        node = None if value is None else value.producer()
        return value if node is None or node not in self.nodes else self.behind_moves(node.inputs[0])


def find_region(call: ir.Node, facts: Facts) -> Region:
    """Return the attention of a call of a row function.

    Args:
        call: The call.
        facts: Shapes of the model's values.

    Raises:
        NotFusedError: there is none, or others read what is inside it.
    """
    region = find_products(call)
    if region.first is not None:
        region.nodes |= dict.fromkeys(region.elementwise)
    for product, position in ((region.first, 0), (region.first, 1), (region.second, 1)):
        if product is not None:
            _take_moves(region, product.inputs[position], facts)
    _take_exchange(region)
    _check(region)
    return region


def find_products(call: ir.Node, *, coded: bool = False) -> Region:
    """Return the two products around a softmax or a call that has taken its place, with what divides the second.

    Args:
        call: The softmax, or the call of a row function.
        coded: Whether scores and weights may go through QuantizeLinear and DequantizeLinear.

    Raises:
        NotFusedError: its weights are read by something else than one product.
    """
    second, between = _product_with_v(call.outputs[0], _CODED if coded else _BETWEEN)
    region = Region(call, second, second.outputs[0])
    region.nodes = dict.fromkeys((call, *between, second))
    _finish(region)
    scores = call.inputs[0]
    above = None if scores is None else _above(scores, region, ELEMENTWISE | _CODES if coded else ELEMENTWISE)
    if above is not None:
        region.first, *_ = above
        region.elementwise = above
    return region


def _product_with_v(weights: ir.Value, passed: frozenset[str]) -> tuple[ir.Node, list[ir.Node]]:
    """Return the product that reads the weights, and the nodes between."""
    between: dict[ir.Node, None] = {}
    products: dict[ir.Node, None] = {}
    pending = [weights]
    while pending:
        value = pending.pop()
        if value.is_graph_output():
            raise NotFusedError(f"its weights ({value.name}) are an output of the graph")
        for user in value.consumers():
            if user.graph is not weights.graph:
                raise NotFusedError(f"its weights are read in a body of {node_label(user)}")
            if is_op(user, "MatMul") and user.inputs[0] is value and user.inputs[1] is not value:
                products[user] = None
            elif _divides_product(user, value):
                continue
            elif is_op(user, *passed) and user not in between:
                between[user] = None
                pending += user.outputs
            elif user not in between:
                raise NotFusedError(f"its weights are read by {operator_label(user)} {node_label(user)}")
    if len(products) != 1:
        raise NotFusedError(f"its weights are read by {len(products)} products with values; one is needed")
    return next(iter(products)), list(between)


def _divides_product(node: ir.Node, value: ir.Value) -> bool:
    """Say whether a node divides a product by a value: the sum of coded weights, which stands behind their product."""
    return is_op(node, "Div") and node.inputs[1] is value and producer(node.inputs[0], "MatMul") is not None


def _finish(region: Region) -> None:
    """Take what is done to the product's elements with the rows' normalizers, and casts of the result."""
    rows = {out for node in region.nodes for out in node.outputs} - {region.result}
    while not region.result.is_graph_output():
        readers = set(region.result.consumers())
        nexts = [user for user in readers if is_op(user, "Div", "Where") and any(x in rows for x in user.inputs)]
        nexts += [user for user in readers if is_op(user, "Cast")] if len(readers) == 1 else []
        nexts += [user for user in readers if is_op(user, "Where") and _zeroes(user, region.result)]
        if len(readers) != 1 or not nexts:
            return
        region.nodes[nexts[0]] = None
        region.result = nexts[0].outputs[0]
        rows |= _take_conditions(region)


def _take_conditions(region: Region) -> set[ir.Value]:
    """Take what compares normalizers, which a guard behind the division reads; return the results."""
    made: set[ir.Value] = set()
    for normalizer in region.call.outputs[1:]:
        for user in normalizer.consumers():
            if is_op(user, "Greater", "IsNaN") and user.graph is region.call.graph:
                region.nodes[user] = None
                made |= set(user.outputs)
    return made


def _zeroes(where: ir.Node, value: ir.Value) -> bool:
    """Say whether a Where makes rows of a value zeros."""
    others = [x for x in where.inputs[1:] if x is not value]
    return len(others) == 1 and others[0] is not None and is_small(others[0])


def _above(value: ir.Value, region: Region, passed: frozenset[str]) -> list[ir.Node] | None:
    """Return the product that a value comes from by such operators alone, and these; None if there is none."""
    node = value.producer()
    if node is None or node.graph is not region.call.graph or value.is_graph_output() or len(value.uses()) != 1:
        return None
    if is_op(node, "MatMul"):
        return [node]
    if not is_op(node, *passed):
        return None
    for source in node.inputs:
        found = None if source is None else _above(source, region, passed)
        if found is not None:
            return [*found, node]
    return None


def _take_moves(region: Region, value: ir.Value | None, facts: Facts) -> None:
    """Take what lays out an operand's heads, repeats them, or makes numbers of codes, where nothing else reads it."""
    while value is not None and region.owns(value):
        node = value.producer()
        shaped = node is not None and is_op(node, "Reshape", "Expand", "Unsqueeze")
        moved = node is not None and (shaped or is_op(node, "Transpose") or _decodes_bytes(node, facts))
        if node is None or node.graph is not region.call.graph or not moved:
            return
        if shaped:
            group, repeat = find_repeat(node, facts)
            if not group:
                return
            region.nodes |= dict.fromkeys(group)
            region.repeats |= {} if repeat is None else dict.fromkeys((group[0], group[-1]), repeat)
            node = group[-1]
        region.nodes[node] = None
        value = node.inputs[0]


def _decodes_bytes(node: ir.Node, facts: Facts) -> bool:
    """Say whether a node gives the numbers that codes of 8 bits stand for, with one scale for all."""
    codes = node.inputs[0] if is_op(node, "DequantizeLinear") else None
    given = [value for value in node.inputs[1:] if value is not None]
    tensors = [constant_tensor(value) for value in given]
    scalars = all(tensor is not None and tensor.shape.rank() == 0 for tensor in tensors)
    if codes is None or not scalars or facts.dtype(node.outputs[0]) is not ir.DataType.FLOAT:
        return False
    return facts.dtype(codes) in (ir.DataType.INT8, ir.DataType.UINT8)


def _take_exchange(region: Region) -> None:
    """Take the Transpose behind the result that puts heads side by side."""
    users = region.result.consumers()
    if len(users) == 1 and not region.result.is_graph_output() and is_op(users[0], "Transpose"):
        perm = users[0].attributes.get("perm")
        if users[0].graph is region.call.graph and perm is not None and list(perm.as_ints()) == [0, 2, 1, 3]:
            region.nodes[users[0]] = None
            region.result = users[0].outputs[0]


def _check(region: Region) -> None:
    for node in region.nodes:
        for value in node.outputs:
            if value is not region.result and not region.owns(value):
                reader = next((user for user in value.consumers() if user not in region.nodes), None)
                who = "is an output of the graph" if reader is None else f"is read by {node_label(reader)}"
                raise NotFusedError(f"{value.name}, which is inside it, {who}")
