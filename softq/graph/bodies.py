"""Opening a node: its operator becomes a function with a body, and the call of that function is inlined.

Writing the body as a function leaves the rest to `onnx_ir`'s inliner: fresh names, absent inputs, kept output names,
and the metadata of the node on everything that takes its place. The bodies by which ONNX defines an operator in other
operators are those of `onnx.defs`, so that they mean what the standard means; where one is written for an older
operator set than the model's, `onnx.version_converter` raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import onnx
import onnx_ir as ir
from onnx import defs, parser, version_converter

from softq.graph.edits import put_in_place
from softq.graph.inlining import InlineCalls
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
    InlineCalls(lambda function: function.domain == _DOMAIN)(model)
    model.opset_imports.pop(_DOMAIN, None)
    return True


def _call(node: ir.Node, name: str, kept: Sequence[int]) -> None:
    """Put a call in the place of a node; attributes and absent outputs are the body's affair."""
    call = ir.Node(_DOMAIN, name, node.inputs, num_outputs=len(kept))
    put_in_place(node, [call], call, [node.outputs[k] for k in kept], call.outputs)


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


def conv_options(node: ir.Node) -> str:
    """Return the attributes of a convolution as ONNX text."""
    options = [f"group: int = {node.attributes.get_int('group', 1)}"]
    for name in ("dilations", "kernel_shape", "pads", "strides"):
        if name in node.attributes:
            options.append(f"{name}: ints = {list(node.attributes[name].as_ints())}")
    options.append(f'auto_pad: string = "{node.attributes.get_string("auto_pad", "NOTSET")}"')
    return f"<{', '.join(options)}>"


def pool_options(node: ir.Node) -> str:
    """Return the attributes of a pool as ONNX text."""
    attributes = node.attributes
    options = [f"{n}: ints = {list(a.as_ints())}" for n, a in attributes.items() if a.type == ir.AttributeType.INTS]
    options += [f"{n}: int = {attributes.get_int(n, 0)}" for n in ("ceil_mode", "count_include_pad") if n in attributes]
    return f'<{", ".join(options)}, auto_pad: string = "{attributes.get_string("auto_pad", "NOTSET")}">'


def find_standard_body(node: ir.Node, opset: int, types: Sequence[onnx.TypeProto]) -> onnx.FunctionProto | None:
    """Return what a node of the default domain is short for, or None where ONNX does not say.

    Args:
        node: The node; its attributes may not refer to those of a function.
        opset: Version of the default domain; the body imports it.
        types: Element type and rank of each input (`type_of`); an empty one for an absent input.
    """
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except defs.SchemaError:
        return None
    bodies = cast("Any", schema)  # onnx's own stubs leave this part out
    proto = _add_defaults(node, schema)
    values = {attribute.name: attribute for attribute in proto.attribute}
    serialized = [kind.SerializeToString() for kind in types]
    dependent = bodies.has_context_dependent_function
    versions = bodies.context_dependent_function_opset_versions if dependent else bodies.function_opset_versions
    # Asked for a version at which an operator of the body has changed, onnx returns nothing.
    for version in (opset, *sorted((v for v in versions if v < opset), reverse=True)):
        if dependent:
            text = bodies.get_context_dependent_function_with_opset_version(
                version, proto.SerializeToString(), serialized
            )
        else:
            text = bodies.get_function_with_opset_version(version)
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        if body.node:
            for inner in body.node:
                bind_attributes(inner, lambda reference: values.get(reference.ref_attr_name))
            del body.attribute[:], body.attribute_proto[:]
            if version < opset:
                return _raise(body, proto, types, version, opset)
            # It may say an older version, from which on its operators are the same.
            del body.opset_import[:]
            body.opset_import.append(onnx.OperatorSetIdProto(domain="", version=opset))
            return body
    return None


def to_type_proto(dtype: ir.DataType, shape: ir.Shape) -> onnx.TypeProto:
    """Return a type and a shape as `find_standard_body` wants them."""
    return ir.serde.serialize_value(ir.Value(name="x", type=ir.TensorType(dtype), shape=shape)).type


def _add_defaults(node: ir.Node, schema: defs.OpSchema) -> onnx.NodeProto:
    """Return the node with every default written out, and no outputs but those that somebody reads."""
    proto = ir.serde.serialize_node(node)
    proto.ClearField("metadata_props")
    present = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            proto.attribute.append(attribute.default_value)
    return proto


def bind_attributes(
    node: onnx.NodeProto, value_of: Callable[[onnx.AttributeProto], onnx.AttributeProto | None]
) -> None:
    """Put values in place of references to a function's attributes; a reference without a value goes."""
    for reference in [attribute for attribute in node.attribute if attribute.ref_attr_name]:
        value = value_of(reference)
        node.attribute.remove(reference)
        if value is not None:
            bound = node.attribute.add()
            bound.CopyFrom(value)
            bound.name = reference.name


def _raise(
    body: onnx.FunctionProto, call: onnx.NodeProto, types: Sequence[onnx.TypeProto], version: int, opset: int
) -> onnx.FunctionProto | None:
    graph = onnx.GraphProto(name="body", node=body.node)
    for name, given, kind in zip(body.input, call.input, types, strict=False):
        if given:
            graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name, _ in zip(body.output, call.output, strict=False))
    imports = [onnx.OperatorSetIdProto(domain="", version=version)]
    try:
        model = version_converter.convert_version(
            onnx.ModelProto(ir_version=10, opset_import=imports, graph=graph), opset
        )
    except RuntimeError:
        return None
    raised = onnx.FunctionProto(input=body.input, output=body.output, node=model.graph.node)
    raised.opset_import.append(onnx.OperatorSetIdProto(domain="", version=opset))
    return raised
