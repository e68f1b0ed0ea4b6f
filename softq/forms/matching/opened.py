"""Opening an operator that holds a softmax: its body takes its place, and the softmax is found again by a mark."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from softq.errors import RefusalError
from softq.graph.bodies import open_nodes
from softq.graph.queries import node_label, operator_label

_MARK = "softq.opened"
"""Metadata key that leads from the Softmax of a body to the node that had the body; it goes when it was read."""


def open_operators(model: ir.Model, bodies: Mapping[ir.Node, onnx.FunctionProto | None]) -> list[ir.Node]:
    """Replace each node by its body and return the Softmax that was in it, in the order of the nodes.

    Args:
        model: The model of the nodes.
        bodies: Operators that hold one softmax each, with what they are short for.

    Raises:
        RefusalError: there is no body for a node.
    """
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
