"""Opening a node: its operator becomes a function with a body, and the call of that function is inlined.

Writing the body as a function leaves the rest to `onnx_ir`'s inliner: fresh names, absent inputs, kept output names,
and the metadata of the node on everything that takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir
from onnx import parser
from onnx_ir.passes.common import InlinePass

from softq.graph.view import ModelView

Body = Callable[[ir.Node, int], onnx.FunctionProto | None]
"""Takes a node and the version of the default domain, returns what the node is short for, or None to leave it."""

_DOMAIN = "softq.opened"
"""Holds the functions between their making and their inlining; no model that leaves this file has it."""


def open_nodes(model: ir.Model, body: Body) -> bool:
    """Replace each node by the body that is known for it; return whether there was any.

    Model-local functions that import another version of the default domain than the model stay closed: what is inlined
    into them would have to be of their version.
    """
    view = ModelView(model)
    main = view.containers[0].opset
    names: dict[bytes, str] = {}
    for container in view.containers:
        if container.opset != main:
            continue
        for node in container.body:
            proto = body(node, main)
            if proto is None:
                continue
            kept = [k for k, value in enumerate(node.outputs) if value.name]
            outputs = [proto.output[k] for k in kept]
            del proto.output[:]
            proto.output.extend(outputs)
            key = proto.SerializeToString(deterministic=True)
            if key not in names:
                names[key] = f"{node.op_type}_{len(names)}"
                proto.domain, proto.name, proto.overload = _DOMAIN, names[key], ""
                function = ir.from_proto(proto)
                model.functions[function.identifier()] = function
            _call(node, names[key], kept)
    if not names:
        return False
    InlinePass(lambda function: function.domain == _DOMAIN)(model)
    model.opset_imports.pop(_DOMAIN, None)
    return True


def _call(node: ir.Node, name: str, kept: Sequence[int]) -> None:
    """Put a call in the place of a node; attributes and absent outputs are the body's affair."""
    call = ir.Node(_DOMAIN, name, node.inputs, num_outputs=len(kept), name=node.name, doc_string=node.doc_string)
    call.metadata_props.update(node.metadata_props)
    call.meta.update(node.meta)
    container = node.graph
    assert container is not None, "a node of a model belongs to a graph"
    old = [node.outputs[k] for k in kept]
    for value, new in zip(old, call.outputs, strict=True):
        new.doc_string = value.doc_string
        new.metadata_props.update(value.metadata_props)
        new.meta.update(value.meta)
    ir.convenience.replace_nodes_and_values(container, node, [node], [call], old, call.outputs)


def parse_body(opset: int, inputs: Sequence[str], outputs: Sequence[str], lines: Sequence[str]) -> onnx.FunctionProto:
    """Return a function of the default domain from lines of ONNX text."""
    head = f'<domain: "{_DOMAIN}", opset_import: ["" : {opset}]> body'
    return parser.parse_function(f"{head} ({', '.join(inputs)}) => ({', '.join(outputs)}) {{ {' '.join(lines)} }}")


def has_input(node: ir.Node, index: int) -> bool:
    """Return whether an optional input is there."""
    return index < len(node.inputs) and node.inputs[index] is not None


def is_read(node: ir.Node, index: int) -> bool:
    """Return whether somebody reads an output."""
    return index < len(node.outputs) and (bool(node.outputs[index].uses()) or node.outputs[index].is_graph_output())


def format_float(value: float) -> str:
    """Return a float attribute as ONNX text, which wants a point or an exponent."""
    text = repr(float(value))
    return text if any(c in text for c in ".en") else f"{text}.0"
