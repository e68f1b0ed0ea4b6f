"""Fused operators, which hold a softmax: a body takes their place, and the softmax is found again by a mark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from softq.errors import RefusalError
from softq.forms import Open
from softq.graph.bodies import open_nodes
from softq.graph.facts import Facts
from softq.graph.queries import node_label, operator_label
from softq.graph.view import ModelView

_MARK = "softq.opened"
"""Metadata key that leads from the Softmax of a body to the node that had the body; it goes when it was read."""


Body = Callable[[ir.Node, int, Facts], onnx.FunctionProto | None]
"""Returns what a node is short for in an operator set."""


def is_contrib(node: ir.Node, name: str, facts: Facts) -> bool:
    """Return whether a node is an operator of onnxruntime's own, and no function that the model brings."""
    identifier = node.op_identifier()
    return identifier[:2] == ("com.microsoft", name) and identifier not in facts.view.model.functions


def refuse_reference(node: ir.Node) -> str:
    """Return why attributes that are those of a function cannot be read; empty if there are none."""
    reference = next((attribute.name for attribute in node.attributes.values() if attribute.is_ref()), None)
    if reference is None:
        return ""
    return f"not yet: the attribute {reference} of node {node_label(node)} is that of the function that holds it"


def count_keys(keys: int | str | None, past: ir.Value | None, rank: int, facts: Facts) -> int | str | None:
    """Return the number of keys with the past ones, None where it is not known.

    Args:
        keys: The number of new keys.
        past: The past keys [..., keys, width]; None if there are none.
        rank: Number of axes of `past`.
        facts: Shapes of the model.
    """
    if past is None:
        return keys
    shape = facts.shape(past)
    before = shape[-2] if shape is not None and len(shape) == rank else None
    return keys + before if isinstance(keys, int) and isinstance(before, int) else None


def make_body_opener(body: Body) -> Open:
    """Return what replaces operators that hold one softmax each by their bodies; see `Form.open`."""

    def open_all(model: ir.Model, nodes: Sequence[ir.Node]) -> list[ir.Node]:
        facts = Facts(ModelView(model))
        return _open(model, {node: body(node, facts.view.container_of(node).opset, facts) for node in nodes})

    return open_all


def _open(model: ir.Model, bodies: Mapping[ir.Node, onnx.FunctionProto | None]) -> list[ir.Node]:
    places = {node: str(place) for place, node in enumerate(bodies)}
    for node, body in bodies.items():
        softmax = None if body is None else next(inner for inner in body.node if inner.op_type == "Softmax")
        if softmax is not None:
            softmax.metadata_props.add(key=_MARK, value=places[node])
    open_nodes(model, lambda node, _: bodies.get(node))
    found: dict[str, ir.Node] = {}
    for container in (model.graph, *model.functions.values()):
        for node in container.all_nodes():
            if (place := node.metadata_props.pop(_MARK, None)) is not None:
                found[place] = node
    lost = next((node for node, place in places.items() if place not in found), None)
    if lost is not None:
        raise RefusalError(f"node {node_label(lost)}: there is no body for this {operator_label(lost)}")
    return [found[place] for place in places.values()]
